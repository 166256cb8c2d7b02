"""Selection of an implementation by name or by auto, its log, and implementations without host reads."""

import logging
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.kernels import compiled, grouped
from headcount.models.kernels.selection import LOGGED, Selectable, select_impl
from tests.cases import features, padding

SOME = make_config(dict(attention="moa", d_model=11, num_experts=7, top_k=3, head_dim=5))
EVEN = make_config(dict(attention="moa", d_model=24, num_experts=7, top_k=3, head_dim=8, bias=True))
ALL = make_config(dict(attention="moa", d_model=11, num_experts=5, top_k=5, head_dim=3))
MHA = make_config(dict(attention="mha", d_model=14, num_heads=7))
MOH = make_config(dict(attention="moh", d_model=12, num_heads=6, num_shared_heads=1, top_k=2))
MODEL = make_config(
    dict(
        model="encoder_decoder", attention="moa", d_model=11, d_ff=13, num_encoder_layers=2, num_decoder_layers=1,
        vocab_size=17, num_experts=7, top_k=3, head_dim=5,
    )
)  # fmt: skip
static_impls = pytest.mark.parametrize("impl", ["dense-all", "grouped"])
routed_configs = pytest.mark.parametrize("config", [EVEN, SOME, ALL], ids=["dm24-D8", "dm11-D5", "K-is-E"])


@pytest.fixture(autouse=True)
def clear_logged_choices():
    LOGGED.clear()


@pytest.fixture
def log_messages():
    """Collect the messages of this package's loggers from INFO on."""
    messages, logger = [], logging.getLogger("headcount")
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield messages
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.mark.parametrize("config, used", [(SOME, "grouped"), (ALL, "dense-all"), (MHA, "fused")])
def test_auto_is_logged_once_per_shape(config, used, log_messages):
    layer = build(config, impl="auto")
    for length in (3, 5, 3, 5):
        layer(torch.zeros(2, length, config.d_model))
        assert layer.impl_used == used
    assert [message.endswith(f"auto runs {used}") for message in log_messages] == [True, True]


@pytest.mark.parametrize(
    "top_k, shape, dtype, device, used",
    [
        (7, (1, 1), torch.float32, "cuda", "dense-all"),
        (7, (2, 11), torch.bfloat16, "cpu", "dense-all"),
        (3, (2, 1), torch.float32, "cuda", "gathered"),
        (3, (1, 2), torch.float32, "cuda", "gathered"),
        (3, (3, 1), torch.float32, "cuda", "grouped"),
        (3, (1, 3), torch.float64, "cuda", "grouped"),
        (3, (1, 3), torch.float32, "cpu", "grouped"),
        (3, (2, 1024), torch.float32, "meta", "gathered"),
        (3, (2, 1024), torch.bfloat16, "meta", "grouped"),
    ],
)
def test_automatic_impl(top_k, shape, dtype, device, used):
    sizes = dict(d_model=11, num_experts=7, top_k=top_k)
    moa = build(make_config(dict(attention="moa", head_dim=5, **sizes)))
    mixture = build(MixtureFeedForwardConfig(d_ff=5, **sizes))
    with FakeTensorMode() if device == "cuda" else nullcontext():
        query = torch.empty(*shape, 11, dtype=dtype, device=device)
    assert moa.automatic(query) == used
    if top_k == 3:
        assert mixture.automatic(query) == {"gathered": "reference"}.get(used, used)


@pytest.mark.parametrize(
    "used_heads, length, grad, training, dropout, device, used",
    [
        (3, 512, False, False, 0.0, "cpu", "ragged"),
        (3, 512, False, True, 0.0, "cpu", "ragged"),
        (3, 512, False, False, 0.1, "cpu", "ragged"),
        # ragged takes no dropout, and its gradient and its graph are others
        (3, 512, False, True, 0.1, "cpu", "fused"),
        (3, 512, True, False, 0.0, "cpu", "fused"),
        (4, 512, False, False, 0.0, "cpu", "fused"),
        (3, 511, False, False, 0.0, "cpu", "fused"),
        (3, 512, False, False, 0.0, "meta", "fused"),
    ],
)
def test_moh_skips_heads_on_cpu_in_inference(used_heads, length, grad, training, dropout, device, used):
    sizes = dict(num_heads=6, num_shared_heads=1, top_k=used_heads - 1, attention_dropout=dropout)
    layer = build(make_config(dict(attention="moh", d_model=12, **sizes)), impl="auto", device=device).train(training)
    with torch.set_grad_enabled(grad):
        layer(torch.zeros(1, length, 12, device=device))
    assert layer.impl_used == used


@pytest.mark.parametrize("impl", [impl.name for impl in SOME.implementations if not impl.package])
def test_used_impls_of_model(impl):
    model = build(MODEL, impl=impl)
    layers = [module for module in model.modules() if isinstance(module, Selectable)]
    assert [layer.impl_used for layer in layers] == [None] * 4
    model(torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64))
    assert [layer.impl_used for layer in layers] == [impl] * 4


@pytest.mark.parametrize("config, wrong", [(SOME, "fused"), (MHA, "grouped"), (MODEL, "fused")])
def test_unknown_implementation_changes_no_layer(config, wrong):
    model = build(config)
    with pytest.raises(ConfigError, match=f"unknown implementation '{wrong}' of m.*; choose from reference, .*auto$"):
        select_impl(model, wrong)
    assert {m.impl for m in model.modules() if isinstance(m, Selectable)} == {"reference"}


@pytest.mark.parametrize(
    "capability, dtype, is_fast",
    [
        ((9, 0), torch.bfloat16, True),
        ((10, 0), torch.bfloat16, True),
        ((9, 0), torch.float16, False),
        ((9, 0), torch.float32, False),
        ((8, 9), torch.bfloat16, False),
    ],
)
def test_grouped_fast_path_needs_bfloat16_on_sm_90(capability, dtype, is_fast, monkeypatch, log_messages):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for _ in range(2):
        assert grouped.has_fast_path(torch.device("cuda"), dtype) is is_fast
    assert len(log_messages) == (not is_fast)


def test_impl_modules_are_imported_on_selection():
    code = """
import sys, torch
sys.modules["triton"] = None
from headcount.models.build import build
from headcount.models.configs.make import make_config
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
config = make_config(dict(attention="moa", d_model=11, num_experts=7, top_k=3, head_dim=5))
build(config)(torch.zeros(2, 3, 11))
assert not {"headcount.models.kernels.loop", "torch._dynamo"} & set(sys.modules)
build(config, impl="loop")
assert "headcount.models.kernels.loop" in sys.modules and "headcount.models.kernels.grouped" not in sys.modules
layer = build(config, device="meta", impl="triton")
assert layer(torch.zeros(2, 3, 11, device="meta")).shape == (2, 3, 11)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class Operations(TorchDispatchMode):
    """Collect every dispatched operation with the shapes of its results."""

    READS_BACK = {"_local_scalar_dense", "item", "nonzero", "bincount", "masked_select", "unique", "_unique2", "histc"}
    """Operations that wait for the device, or whose shapes depend on values."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else (out,)
        shapes = tuple(tuple(t.shape) for t in tensors if isinstance(t, torch.Tensor))
        self.seen.append((func.overloadpacket.__name__, shapes))
        return out


@routed_configs
@static_impls
def test_shapes_are_static_without_host_reads(impl, config, monkeypatch):
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, dtype: True)
    seen = []
    for seed in (1, 2):
        layer, query = build(config, impl=impl), features(3, 13, config.d_model, seed=seed).float()
        with Operations() as operations:
            layer(query, key_padding_mask=padding((13, 7, 2), 13)).sum().backward()
        seen.append(operations.seen)
    assert seen[0] == seen[1] and not {name for name, _ in seen[0]} & Operations.READS_BACK


@pytest.mark.parametrize("config", [SOME, MHA, MOH], ids=["moa", "mha", "moh"])
def test_compiled_is_one_graph_of_plain_implementation(config, monkeypatch):
    how = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: how.append(options) or function)
    run = getattr(compiled, config.variant)
    compiled._compile.cache_clear()
    layer, x = build(config), torch.randn(2, 3, config.d_model)
    expected = layer(x)
    layer._runs["reference"] = run
    torch.testing.assert_close(layer(x), expected)
    assert how == [{"fullgraph": True, "dynamic": False}]
    compiled._compile.cache_clear()
