"""Tensors that a forward pass creates: on the device of the inputs, with their batch, whatever the default dtype."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.aggregated import coordinates
from headcount.models.build import build, example_inputs
from headcount.models.configs.aggregated import AggregatedAttentionConfig
from headcount.models.configs.make import make_config
from headcount.models.dit import TimestepEmbedding
from headcount.models.encoder_decoder import sinusoidal_positions
from headcount.models.rotary import rotary_table
from tests.cases import LENGTHS, MODEL_FIELDS, configurations

MODELS = (
    "translation-mha", "translation-mae-memory", "translation-mae-running", "translation-mixture", "masked-mha",
    "llama-gqa", "llama-mixture", "jetmoe", "deepseek-predictors", "decoder-learned", "decoder-parallel", "dit-moh",
    "images-moh", "images-mixture", "light", "dynamic-mae", "dynamic-band",
)  # fmt: skip
"""Cases of every kind of model. LAYERS has every attention variant as a single layer."""
CONFIGS = dict(configurations("form", "router", "gates", "gate"))
# the implementation "loop" reads values from the device, and meta tensors have none
LAYERS = [
    pytest.param(config, impl, id=f"{name}-{impl.name}")
    for name, config in CONFIGS.items()
    for impl in config.implementations
    if impl.name != "loop"
]


class OffMetaOperations(TorchDispatchMode):
    """Collect the operations whose results are not on meta."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else (out,)
        if any(isinstance(x, torch.Tensor) and not x.is_meta for x in tensors):
            self.seen.add(func.overloadpacket.__name__)
        return out


def no_padding(batch_size, length):
    return torch.zeros(batch_size, length, dtype=torch.bool, device="meta")


@pytest.mark.parametrize("config, impl", LAYERS)
def test_layer_stays_on_device(config, impl):
    layer = build(config, device="meta", dtype=torch.bfloat16, impl=impl.name).train()
    inputs = example_inputs(config, LENGTHS, device="meta", dtype=torch.bfloat16)
    calls = [{}]
    if impl.masks:
        padded = dict(query_padding_mask=no_padding(2, 7), key_padding_mask=no_padding(2, 11))
        calls = [padded] if getattr(config, "gate", "") == "sequence" else [padded, padded | dict(causal=True)]
    operations = OffMetaOperations()
    for masks in calls:
        with operations:
            layer(**inputs, **masks).sum().backward()
    if impl.masks and config.rotary:
        rotary = rotary_table(7, config.rotary_width, 100.0, device="meta", dtype=torch.bfloat16)
        with operations, torch.no_grad():
            layer(inputs["query"], rotary=rotary, cache=layer.make_cache(2, 7))
    assert not operations.seen


@pytest.mark.parametrize("case", MODELS)
def test_model_stays_on_device(case):
    config = make_config(MODEL_FIELDS[case])
    model, inputs = (
        build(config, device="meta"),
        example_inputs(config, dict.fromkeys(config.lengths, 7), device="meta"),
    )
    with OffMetaOperations() as operations, torch.no_grad():
        model(**inputs)
        if hasattr(model, "encode"):
            model.step(model.encode(inputs["src_tokens"], no_padding(7, 7), max_len=7), inputs["tgt_tokens"])
    assert not operations.seen


class BatchDimensions(TorchFunctionMode):
    """Collect the batch dimensions of both operands of every product with an operand of three dimensions or more."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.matmul, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__):
            a, b = args
            if min(a.dim(), b.dim()) > 2:
                self.seen.append((tuple(a.shape[:-2]), tuple(b.shape[:-2])))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*CONFIGS, "images", "dynamic-mae"])
@torch.no_grad()
def test_product_operands_have_whole_batch(name):
    config = CONFIGS.get(name) or make_config(MODEL_FIELDS[name])
    with BatchDimensions() as products:
        build(config)(**example_inputs(config, dict(config.lengths, batch_size=3)))
    assert products.seen and all(a == b for a, b in products.seen), products.seen


GRID = AggregatedAttentionConfig(d_model=6, num_heads=2, side=7, pool_ratio=1)
EMBEDDING = TimestepEmbedding(22, 5).double()
TABLES = {
    "sinusoidal": lambda: sinusoidal_positions(7, 13),
    "rotary": lambda: torch.cat(rotary_table(7, 10, 100.0)),
    "rotary-double": lambda: torch.cat(rotary_table(7, 10, 100.0, dtype=torch.float64)),
    "grid": lambda: coordinates(GRID, torch.empty((), dtype=torch.float64)),
    "timesteps": lambda: EMBEDDING(torch.tensor([3, 997])),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_ignore_default_dtype(name):
    expected = TABLES[name]()
    torch.set_default_dtype(torch.float64)
    try:
        found = TABLES[name]()
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == expected.dtype and torch.equal(found, expected)
