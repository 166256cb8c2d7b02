"""Whatever a forward makes lies where its inputs lie: nothing is made on the processor and moved."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.build import build, example_inputs
from headcount.models.configs.presets import preset
from headcount.models.rotary import rotary_table
from tests.cases import LENGTHS, configurations

# the loop reads sizes back, which meta does not have
LAYERS = [
    pytest.param(config, impl, id=f"{name}-{impl.name}")
    for name, config in configurations("form", "router", "gates", "gate")
    for impl in config.implementations
    if impl.name != "loop"
]
ONE, BOTH = {"num_layers": 1}, {"num_encoder_layers": 1, "num_decoder_layers": 1}
KERNELS = {"encoder_kernel_sizes": (3,), "decoder_kernel_sizes": (3,)}
MODELS = {
    "transformer-base": BOTH, "mae-7": BOTH, "lightconv": KERNELS, "dynamicconv": KERNELS | {"spelling": "band"},
    "mlm-transformer": ONE, "llm-s": ONE, "jetmoe-small": ONE, "dit-s2": ONE,
}  # fmt: skip


class Elsewhere(TorchDispatchMode):
    """The operations whose results are not on meta."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else (out,)
        if any(isinstance(x, torch.Tensor) and not x.is_meta for x in tensors):
            self.seen.add(func.overloadpacket.__name__)
        return out


def padding(length):
    return torch.zeros(LENGTHS["batch_size"], length, dtype=torch.bool, device="meta")


@pytest.mark.parametrize("config, impl", LAYERS)
def test_layer_stays_on_device(config, impl):
    layer = build(config, device="meta", dtype=torch.bfloat16, impl=impl.name).train()
    inputs = example_inputs(config, LENGTHS, device="meta", dtype=torch.bfloat16)
    calls = [{}]
    if impl.masks:
        padded = dict(query_padding_mask=padding(7), key_padding_mask=padding(11))
        calls = [padded] if getattr(config, "gate", "") == "sequence" else [padded, padded | dict(causal=True)]
    elsewhere = Elsewhere()
    for how in calls:
        with elsewhere:
            layer(**inputs, **how).sum().backward()
    if impl.masks and config.rotary:
        rotary = rotary_table(7, config.rotary_width, 100.0, device="meta", dtype=torch.bfloat16)
        with elsewhere, torch.no_grad():
            layer(inputs["query"], rotary=rotary, cache=layer.make_cache(2, 7))
    assert not elsewhere.seen


@pytest.mark.parametrize("name", MODELS)
def test_model_stays_on_device(name):
    config = preset(name, MODELS[name])
    model, lengths = build(config, device="meta"), dict.fromkeys(config.lengths, 7)
    inputs, elsewhere = example_inputs(config, lengths, device="meta"), Elsewhere()
    with elsewhere, torch.no_grad():
        model(**inputs)
        if hasattr(model, "encode"):
            model.step(
                model.encode(inputs["src_tokens"], padding(7)[:1].expand(7, -1), max_len=7), inputs["tgt_tokens"]
            )
    assert not elsewhere.seen
