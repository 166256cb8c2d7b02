"""Triton operators without triton: shapes and MACs on meta, requirements by device, and launch tables."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from headcount.bench.counting.run import count_contractions
from headcount.bench.trace.record import record
from headcount.models.attention import Inputs
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.kernels import selection, triton_moa
from headcount.models.kernels.selection import missing, runnable
from headcount.models.kernels.triton_configs import TABLE, launch_for

LAYERS = {
    "moa-K3-E7-dm11-D5": dict(attention="moa", d_model=11, num_experts=7, top_k=3, head_dim=5),
    "moa-K5-E5-dm11-D3": dict(attention="moa", d_model=11, num_experts=5, top_k=5, head_dim=3),
    "moh-h6-s2-r1-g3": dict(
        attention="moh", d_model=13, num_heads=6, num_shared_heads=2, top_k=1, num_kv_heads=3, head_dim=5
    ),
}
B, T, S = 2, 7, 11


def count(name, impl, backward=False, tgt_len=T, **form):
    config = make_config(LAYERS[name] | form)
    layer = build(config, device="meta", impl=impl)
    inputs = example_inputs(config, {"batch_size": B, "tgt_len": tgt_len, "src_len": S}, device="meta")
    with torch.set_grad_enabled(backward):
        return count_contractions(record(layer, (), inputs, backward=backward))


def macs_of(count, kinds):
    return sum(entry.macs for entry in count.ledger if entry.kind in kinds)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("moa")])
def test_macs_match_reference(name):
    reference = count(name, "reference")
    found = count(name, "triton")
    assert any(event.name.startswith("headcount.") for event in found.trace.events) and not found.unsupported
    assert found.macs == reference.macs
    heads, head_dim = LAYERS[name]["top_k"], LAYERS[name]["head_dim"]
    assert macs_of(found, {"scores"}) == macs_of(reference, {"scores"}) == B * T * S * heads * head_dim


@pytest.mark.parametrize("length", [T, 1])
def test_selected_heads_match_ideal_form(length):
    ideal = count("moh-h6-s2-r1-g3", "reference", tgt_len=length, form="ideal")
    found = count("moh-h6-s2-r1-g3", "triton", tgt_len=length)
    for kinds in ({"scores"}, {"values"}):
        assert macs_of(found, kinds) == macs_of(ideal, kinds) == B * length * 3 * S * 5
    # the projections of every head, and the router's three matrices: 4 routed heads, 2 shared ones, 2 groups
    every = 2 * B * length * 13 * 6 * 5 + 2 * B * S * 13 * 3 * 5 + B * length * 13 * (4 + 2 + 2)
    assert macs_of(found, {"linear"}) == every


def test_backward_has_twice_the_forward_macs():
    forward = count("moa-K3-E7-dm11-D5", "triton")
    reference = count("moa-K3-E7-dm11-D5", "reference", backward=True)
    found = count("moa-K3-E7-dm11-D5", "triton", backward=True)
    routed = {"expert_linear_dx", "expert_linear_dw"}
    assert macs_of(found, routed) == 2 * macs_of(forward, {"expert_linear"})
    assert macs_of(found, routed | {"expert_linear"}) == macs_of(reference, routed | {"expert_linear"})


PACKAGE = "the package triton (pip install triton)"


@pytest.mark.parametrize(
    "package, interpret, lacks",
    [
        (None, None, {"cpu": PACKAGE, "cuda": PACKAGE, "meta": None}),
        (None, "1", {"cpu": PACKAGE, "cuda": PACKAGE, "meta": None}),
        (object(), None, {"cpu": "a CUDA device", "cuda": None, "meta": None}),
        (object(), "0", {"cpu": "a CUDA device", "cuda": None, "meta": None}),
        (object(), "1", {"cpu": None, "cuda": None, "meta": None}),
    ],
)
def test_missing_requirements_by_device(package, interpret, lacks, monkeypatch):
    monkeypatch.setattr(selection.importlib.util, "find_spec", {"triton": package}.__getitem__)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if interpret:
        monkeypatch.setenv("TRITON_INTERPRET", interpret)
    config = make_config(LAYERS["moa-K3-E7-dm11-D5"])
    impls = {impl.name: impl for impl in config.implementations}
    for device, lack in lacks.items():
        assert missing(impls["triton"], torch.device(device)) == lack
        assert missing(impls["loop"], torch.device(device)) is None
        assert ("triton" in runnable(config, torch.device(device))) == (lack is None)


@pytest.mark.parametrize("spec", [object(), None], ids=["triton", "without"])
def test_auto_selects_triton_for_16_bits(spec, monkeypatch):
    monkeypatch.setattr(selection.importlib.util, "find_spec", lambda name: spec)
    layers = [build(make_config(values)) for values in LAYERS.values()]
    with FakeTensorMode():
        query = torch.empty(2, 3, 11, dtype=torch.bfloat16, device="cuda")
    others = ["grouped", "dense-all", "fused"]
    assert [layer.automatic(query) for layer in layers] == (["triton"] * 3 if spec else others)
    assert [layer.automatic(query.float()) for layer in layers] == others


@pytest.mark.parametrize("kernel", TABLE)
def test_every_size_has_a_launch(kernel):
    """The last row of each table fits all sizes, and rows have conditions on known sizes alone."""
    assert not TABLE[kernel][-1].least
    smallest = dict(arch=80, E=1, rows=0, i=1, o=1, plain=0, D=16)
    for row in TABLE[kernel]:
        assert launch_for(kernel, **smallest | row.least) in [other.launch for other in TABLE[kernel]]
        assert set(row.least) <= set(smallest)
    assert launch_for(kernel, **smallest) == TABLE[kernel][-1].launch


@pytest.mark.parametrize(
    "dtype, head_dim, fits",
    [
        (torch.float32, 64, True),
        (torch.float32, 65, False),
        (torch.float32, 128, False),
        (torch.bfloat16, 128, True),
        (torch.float16, 129, False),
    ],
)
def test_wide_heads_leave_mqa_to_torch(dtype, head_dim, fits):
    with FakeTensorMode():
        q, key = (torch.empty(2, 7, heads, head_dim, dtype=dtype, device="cuda") for heads in (5, 1))
    with torch.no_grad():
        assert triton_moa._in_one_kernel(q, Inputs(q, key, key)) is fits


@pytest.mark.parametrize(
    "dtype, head_dim, fits", [(torch.float32, 65, False), (torch.bfloat16, 256, True), (torch.bfloat16, 257, False)]
)
def test_wide_heads_leave_decoding_to_torch(dtype, head_dim, fits):
    with FakeTensorMode():
        q, key = (torch.empty(2, n, 1, head_dim, dtype=dtype, device="cuda") for n in (1, 9999))
    with torch.no_grad():
        assert triton_moa._in_one_kernel(q, Inputs(q, key, key)) is fits


@pytest.mark.parametrize("backward", [False, True])
def test_absent_bias_and_gradients_launch_nothing(backward):
    names = [event.name for event in count("moa-K5-E5-dm11-D3", "triton", backward).trace.events]
    names += [event.name for event in count("moa-K3-E7-dm11-D5", "triton").trace.events]
    assert not {"zeros", "_to_copy"} & set(names)
