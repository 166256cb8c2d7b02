"""Every configuration with a module builds on meta and on the CPU, with seeded weights and inputs."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.trace.shapes import cache_shapes
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset
from headcount.models.encoder_decoder import sinusoidal_positions
from tests.cases import MODEL_FIELDS, configurations

LENGTHS = {"batch_size": 2, "src_len": 3, "tgt_len": 2, "seq_len": 5}

SMALL = dict(configurations("form"))
KINDS = ("masked_lm", "llama")
OTHERS = ("translation-mha", "translation-moa-noisy", "images", "images-moh", "images-mixture")
MODELS = {
    name: make_config(values) for name, values in MODEL_FIELDS.items() if values["model"] in KINDS or name in OTHERS
}
# a router of one expert has no gradient
SMALL |= {name: config for name, config in MODELS.items() if name != "masked-moa-one-expert"}
every_small = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)


def presets_by_kind():
    """Return the presets with a module as parameters; all but the first of each kind run nightly.

    Presets of one kind differ in sizes alone: they have the same model, attention and choices.
    """
    kinds, params = set(), []
    for name in PRESETS:
        config = preset(name)
        if config.has_module:
            parts = config, *getattr(config, "layers", (config.attention,))
            choices = {value for part in parts for value in vars(part).values() if isinstance(value, str | bool)}
            kind = frozenset(part.variant for part in parts), frozenset(choices)
            params.append(pytest.param(name, marks=pytest.mark.nightly if kind in kinds else ()))
            kinds.add(kind)
    return params


@pytest.mark.parametrize("name", presets_by_kind())
def test_preset_runs_on_meta(name):
    config = preset(name)
    model = build(config, device="meta")
    # layers that are equal call equal operations: the first has its shapes from torch
    with cache_shapes(model):
        out = model(**example_inputs(config, LENGTHS, device="meta"))
    assert out.device.type == "meta"
    if config.variant == "dit":
        assert out.shape == (2, 8, config.latent_size, config.latent_size)
    elif config.variant == "transnext":
        assert out.shape == (2, config.num_classes)
    else:
        length = LENGTHS["seq_len" if "seq_len" in config.lengths else "tgt_len"]
        assert out.shape == (2, length, config.vocab_size)
    assert not model.training


@pytest.mark.parametrize(
    "name, parameters",
    [("mlm-transformer", 51_336_281), ("mlm-moa-8K8E128D", 52_444_249), ("mlm-moa-8K64E256D", 179_905_625)],
)
def test_preset_parameters_match_released_model(name, parameters):
    assert sum(p.numel() for p in build(preset(name), device="meta").parameters()) == parameters


DTYPES = (torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize(
    "config, dtype", [pytest.param(c, DTYPES[i % 3], id=name) for i, (name, c) in enumerate(SMALL.items())]
)
def test_weights_depend_on_the_seed_alone(config, dtype):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    model, first, other = build(config, dtype=dtype), build(config).state_dict(), build(config, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in model.state_dict().items():
        assert torch.equal(first[name].to(dtype), weight)
        assert weight.dim() == 1 or not weight.any() or not torch.equal(first[name], other[name])
    out = model(**example_inputs(config, LENGTHS, dtype=dtype))
    on_meta = build(config, device="meta", dtype=dtype)(**example_inputs(config, LENGTHS, device="meta", dtype=dtype))
    assert out.dtype == on_meta.dtype == dtype
    assert out.shape == on_meta.shape and out.isfinite().all()


@every_small
def test_uninitialised_model_is_zero(config):
    model = build(config, initialise=False)
    assert all(parameter.eq(0).all() for parameter in model.parameters())
    assert model(**example_inputs(config, LENGTHS)).eq(0).all()


@every_small
def test_projections_start_glorot_uniform(config):
    seen = 0
    for name, module in build(config).named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.LayerNorm):
            assert weight.eq(1).all() and module.bias.eq(0).all()
        elif hasattr(module, "in_features") and not name.endswith("output_proj"):
            bound = math.sqrt(6 / (module.in_features + module.out_features))
            assert 0.85 * bound < weight.abs().max() <= bound
            assert module.bias is None or module.bias.eq(0).all()
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize("d_model", [1, 2, 13, 16])
def test_sinusoidal_positions_match_formula(d_model):
    table = sinusoidal_positions(7, d_model)
    assert table.shape == (7, d_model)
    for t in range(7):
        for i in range(d_model):
            angle = t / 10000 ** (2 * (i // 2) / d_model)
            assert table[t, i].item() == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-5)


def test_missing_length_raises():
    message = r"^lengths needs src_len; all of batch_size, src_len, tgt_len are wanted$"
    with pytest.raises(ConfigError, match=message):
        example_inputs(preset("transformer-base"), {"batch_size": 1, "tgt_len": 5})
    with pytest.raises(ConfigError, match=message):
        example_inputs(SMALL["moa"], {"batch_size": 1, "tgt_len": 5})


def test_inputs_beyond_the_position_table_raise():
    config = MODELS["masked-mha"]
    model = build(config, device="meta")
    longest = {"batch_size": 1, "seq_len": 17}
    assert model(**example_inputs(config, longest, device="meta")).shape == (1, 17, 41)
    with pytest.raises(ConfigError, match=r"^seq_len must be at most max_positions - 2 = 17, not 18; "):
        example_inputs(config, {"batch_size": 1, "seq_len": 18})


@every_small
def test_count_is_the_same_for_device_dtype_and_chunks(config, monkeypatch):
    readings = set()
    # on meta there are no chunks
    for chunk_bytes, device, dtype in ((8000, "cpu", torch.float32), (10**9, "meta", torch.float64)):
        monkeypatch.setattr("headcount.models.experts.GATHERED_BYTES", chunk_bytes)
        inputs = example_inputs(config, LENGTHS, device=device, dtype=dtype)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            build(config, device=device, dtype=dtype)(**inputs)
        readings.add(counter.get_total_flops())
    assert len(readings) == 1 and readings.pop() > 0


@every_small
def test_training_step_reaches_every_parameter(config):
    model = build(config).train()
    model(**example_inputs(config, {**LENGTHS, "batch_size": 13})).square().sum().backward()
    # softmax ignores what every key adds alike
    silent = {name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0}
    assert {name for name in silent if not name.endswith("k_proj.bias")} == set()
