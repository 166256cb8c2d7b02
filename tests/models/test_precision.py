"""Every implementation in every precision: forward, backward and decoding with a cache."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.kernels.selection import missing

VARIANTS = {
    "mha": dict(attention="mha", d_model=16, num_heads=4, num_kv_heads=2, head_dim=8),
    "moa": dict(attention="moa", d_model=16, num_experts=5, top_k=2, head_dim=8),
    "moa-biased": dict(attention="moa", d_model=16, num_experts=5, top_k=2, head_dim=8, bias=True),
    "moh": dict(attention="moh", d_model=16, num_heads=5, num_shared_heads=2, top_k=1, head_dim=8),
    "moh-norm": dict(
        attention="moh", d_model=16, num_heads=5, num_shared_heads=2, top_k=1, head_dim=8, router="query_norm"
    ),
    "moh-ideal": dict(attention="moh", d_model=16, num_heads=5, num_shared_heads=2, top_k=1, head_dim=8, form="ideal"),
}
PRECISIONS = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "float16": (torch.float16, None),
    "autocast-bfloat16": (torch.float32, torch.bfloat16),
    "autocast-float16": (torch.float32, torch.float16),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CASES = [
    pytest.param(name, impl, id=f"{name}-{impl.name}")
    for name, values in VARIANTS.items()
    for impl in make_config(values).implementations
]


def lowered(device, dtype):
    return torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None)


def made(name, impl, dtype, device, **form):
    layer = build(make_config(VARIANTS[name] | form), dtype=dtype, device=device, impl=impl.name)
    x = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(3)).to(device, dtype)
    return layer, x.requires_grad_()


def close(found, expected):
    # one part in 2^7 is bfloat16's last place; sums of a few products lose a little more
    difference = torch.linalg.vector_norm(found.detach().double() - expected.detach().double())
    return float(difference / torch.linalg.vector_norm(expected.detach().double())) < 0.03


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name, impl", CASES)
def test_every_precision_matches_float64(name, impl, precision, device):
    if missing(impl, torch.device(device)):
        pytest.skip(f"{impl.name} needs {missing(impl, torch.device(device))}")
    dtype, cast = PRECISIONS[precision]
    layer, x = made(name, impl, dtype, device)
    with lowered(device, cast):
        y = layer(x)
    y.float().square().sum().backward()
    found = {"output": y, "input": x.grad} | {n: p.grad for n, p in layer.named_parameters()}
    assert all(value.isfinite().all() for value in found.values() if value is not None)
    assert x.grad.dtype == dtype and all(p.grad.dtype == dtype for p in layer.parameters() if p.grad is not None)

    # the reference in float64, of the form whose gradient the impl has
    reference = layer.config.implementations[0]
    form = {} if impl.gradient is None else {"form": impl.gradient}
    layer, x = made(name, reference, dtype, device, **form)
    layer, x = layer.double(), x.detach().double().requires_grad_()
    expected = layer(x)
    expected.square().sum().backward()
    assert close(y, expected) and close(found["input"], x.grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name, impl", CASES)
def test_caches_match_whole_sequences(name, impl, precision, device):
    if missing(impl, torch.device(device)):
        pytest.skip(f"{impl.name} needs {missing(impl, torch.device(device))}")
    dtype, cast = PRECISIONS[precision]
    layer, x = made(name, impl, dtype, device)
    source = x.detach().flip(1)
    filled = layer.fill_cache(source)
    with torch.no_grad(), lowered(device, cast):
        # keys of another sequence, in the precision of the weights and of autocast
        assert close(layer(x, cache=filled), layer(x, source))
        if impl.masks:
            cache = layer.make_cache(3, 7)
            steps = torch.cat([layer(x[:, i : i + 1], cache=cache) for i in range(7)], dim=1)
            assert close(steps, layer(x, causal=True))
            assert close(layer(x, cache=layer.fill_cache(source)), layer(x, source))
