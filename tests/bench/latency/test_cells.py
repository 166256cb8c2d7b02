"""What is timed: layers and models by name, the arms of each, and the dense layers beside them."""

from dataclasses import replace

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import clock
from headcount.bench.latency.arms import ArmSpec, layer_arms, model_arms, skips
from headcount.bench.latency.cells import ELEMENT_BYTES, Cell, cells_of_layers, cells_of_models
from headcount.bench.latency.roofline import Peaks
from headcount.bench.latency.shared import DTYPES
from headcount.models.configs.base import ConfigError
from headcount.models.configs.layers import LAYERS, layer
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset

PEAKS = Peaks(1e9, 1e9, "made up")


TINY = dict(seq_len=7, batch_size=2, dtype="float64", which="forward", device="cpu", routing="zipf")
PLACE = dict(dtype="float32", device="cpu")


def test_layers_have_the_dense_layers_beside_them_that_they_are_judged_against():
    arms = {arm.role: arm for arm in layer_arms("moa-16K32E256D", None, "cpu")}
    assert (arms["mqa"].config.num_heads, arms["mqa"].config.num_kv_heads, arms["mqa"].config.head_dim) == (16, 1, 256)
    assert (arms["mha"].config.num_heads, arms["mha"].config.head_dim) == (8, 64)
    assert (arms["mha-inner"].config.num_heads, arms["mha-inner"].config.num_kv_heads) == (16, 16)
    assert [arm.role for arm in layer_arms("mha-base", None, "cpu")] == ["subject"]
    assert not any(getattr(arm.config, "bias", False) for name in LAYERS for arm in layer_arms(name, None, "cpu"))


@pytest.mark.parametrize("share, active", [(100, 32), (90, 29), (75, 24), (50, 16)])
@pytest.mark.parametrize("shape, width", [("moh-32x64", 2048), ("moh-llama3", 4096)])
def test_moh_layers_use_the_share_of_heads_in_their_name(shape, width, share, active):
    arms = {(arm.role, arm.arm): arm for arm in layer_arms(f"{shape}-{share}", None, "cpu")}
    assert set(arms) == {("dense", "fused"), ("subject", "ragged"), ("mha", "fused")}
    config = arms["subject", "ragged"].config
    assert (config.num_active_heads, config.num_heads, config.d_model) == (active, 32, width)


def test_an_arm_skips_heads_in_a_layer_that_has_it_and_does_so():
    found = [skips("moh-32x64-50", arm) for arm in ("ragged", "fused", "reference", "auto")]
    assert found == [True, False, False, False]
    # experts that are not used are left out by MoA's own form, and dense layers use every head
    assert not skips("moa-8K8E128D", "grouped") and not skips("mha-base", "ragged")


def test_what_decodes_are_the_arms_that_take_masks(monkeypatch):
    cell = Cell("layer", "moh-32x64-50", **TINY | {"which": "decode"})
    assert [arm.arm for arm in cell.arms()] == ["fused", "ragged", "fused"]
    config = layer("moh-32x64-50")
    blind = [arm._replace(masks=arm.name != "ragged") for arm in config.implementations]
    monkeypatch.setattr(type(config), "implementations", tuple(blind))
    assert [arm.arm for arm in cell.arms()] == ["fused", "fused"]


def test_an_arm_is_timed_where_it_runs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    on = {device: [arm.arm for arm in layer_arms("moa-8K8E128D", None, device)][:-3] for device in ("cpu", "cuda")}
    assert on["cpu"] == ["dense-all", "grouped", "loop"]
    assert on["cuda"] == ["dense-all", "grouped", "loop", "triton"]
    assert [arm.arm for arm in layer_arms("moa-8K8E128D", None, None)][:-3] == on["cuda"]
    with pytest.raises(UsageError, match="arm triton needs a CUDA device; choose from reference, gathered, dense-all"):
        layer_arms("moa-8K8E128D", ["triton"], "cpu")


def test_few_tokens_are_also_timed_by_the_arm_for_few_rows():
    names = [[arm.arm for arm in layer_arms("moa-8K8E128D", None, "cpu", tokens)] for tokens in (64, 65)]
    assert "gathered" in names[0] and "gathered" not in names[1]
    step = Cell("layer", "moa-8K8E128D", **TINY | {"which": "decode", "seq_len": 512, "batch_size": 32})
    assert "gathered" in [arm.arm for arm in step.arms()]
    whole = Cell("layer", "moa-8K8E128D", **TINY | {"seq_len": 512, "batch_size": 32})
    assert "gathered" not in [arm.arm for arm in whole.arms()]


def test_names_that_do_not_exist_name_those_that_do():
    with pytest.raises(ConfigError, match="unknown layer 'x'; headcount latency --list names all"):
        layer_arms("x", None, "cpu")
    with pytest.raises(UsageError, match="unknown model 'x'; headcount latency --list names all"):
        model_arms("x", None, "cpu")
    with pytest.raises(UsageError, match="mha has no arm loop; choose from reference, fused, auto"):
        layer_arms("mha-base", ["loop"], "cpu")


def test_a_model_without_a_module_is_not_timed(monkeypatch):
    monkeypatch.setattr(type(preset("mae-7").attention), "module", None)
    with pytest.raises(UsageError, match="mae-7 is a closed form only; headcount latency --list names the models"):
        model_arms("mae-7", None, "cpu")


def test_cells_are_every_combination_and_routing_is_swept_for_routed_layers():
    shape = dict(tokens=100, batch_size=None, dtype="float32", device="cpu", asked=None)
    found = list(cells_of_layers(["mha-base", "moa-8K8E128D"], [10, 300], ["forward"], ["balanced", "zipf"], **shape))
    assert [(c.name, c.seq_len, c.batch_size, c.routing) for c in found] == [
        ("mha-base", 10, 10, "balanced"),
        ("moa-8K8E128D", 10, 10, "balanced"),
        ("moa-8K8E128D", 10, 10, "zipf"),
        ("mha-base", 300, 1, "balanced"),
        ("moa-8K8E128D", 300, 1, "balanced"),
        ("moa-8K8E128D", 300, 1, "zipf"),
    ]
    assert len({c.key for c in found}) == len(found)
    models = list(cells_of_models(["mlm-transformer", "transformer-base"], None, ["both"], **shape))
    assert [c.seq_len for c in models] == [128, 10]


@pytest.mark.parametrize("which", ["forward", "both"])
def test_a_model_of_images_is_timed_at_its_own_number_of_patches(which, monkeypatch):
    sizes = dict(d_model=12, num_heads=2, num_layers=1, latent_size=6, num_classes=5)
    config = make_config(PRESETS["dit-s2"] | sizes)
    shape = dict(tokens=18, batch_size=None, dtype="float32", device="cpu", asked=None)
    monkeypatch.setattr("headcount.bench.latency.cells.preset", lambda name: config)
    (cell,) = cells_of_models(["tiny"], None, [which], **shape)
    assert (cell.seq_len, cell.batch_size) == (9, 2)
    monkeypatch.setattr(Cell, "arms", lambda self: [ArmSpec("tiny", config, "fused", "subject")])
    (record,) = clock.measure_cell(cell, PEAKS, blocks=2)
    assert record["status"] == "timed"


def test_models_have_the_packed_arm():
    assert [arm.arm for arm in model_arms("moh-llm-s-75", None, "cpu")] == ["fused", "ragged"]
    assert [arm.arm for arm in model_arms("moh-dit-s2-75", None, "cpu")] == ["fused", "ragged"]
    assert {(arm.name, arm.role) for arm in model_arms("moh-dit-s2-75", None, "cpu")} == {("moh-dit-s2-75", "subject")}


def test_arms_that_are_asked_for_by_name_are_all_that_is_timed():
    found = layer_arms("moa-8K8E128D", ["loop", "auto", "fused"], "cpu")
    assert [arm.arm for arm in found if arm.role == "subject"] == ["loop", "auto"]


def test_arms_that_a_layer_does_not_have_are_named_with_those_that_it_has():
    with pytest.raises(UsageError, match="^mha has no arm loop, fast; choose from reference, fused, auto$"):
        layer_arms("mha-base", ["loop", "fast"], "cpu")


def test_a_number_has_as_many_bytes_as_torch_gives_it():
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == ELEMENT_BYTES
    assert Cell("layer", "mha-base", **TINY | {"dtype": "bfloat16"}).element_bytes == 2


def test_a_model_has_every_length_and_a_layer_its_new_tokens_and_all_keys():
    model = Cell("model", "transformer-base", **TINY)
    assert model.case(model.config).lengths == {"batch_size": 2, "src_len": 7, "tgt_len": 7}
    step = Cell("layer", "mha-base", **TINY | {"which": "decode"})
    assert step.case(step.config).lengths == {"batch_size": 2, "tgt_len": 1, "src_len": 7}
    assert (model.case(model.config).name, step.case(step.config).name) == ("transformer-base", "mha-base")


def test_a_key_says_all_that_tells_a_cell_from_another():
    cell = Cell("layer", "mha-base", **TINY)
    assert cell.key == "layer mha-base T7 B2 float64 forward cpu zipf"
    assert replace(cell, asked=("fused", "loop")).key == f"{cell.key} fused+loop"
    assert replace(cell, asked=("loop",), blocks=60).key == f"{cell.key} loop again in 60 blocks"


def test_a_layer_is_told_its_routing_and_a_model_routes_its_tokens_itself():
    (cell,) = cells_of_layers(["mha-base"], [7], ["both"], ["zipf"], tokens=21, batch_size=None, **PLACE)
    assert (cell.subject, cell.routing, cell.seq_len, cell.batch_size) == ("layer", "zipf", 7, 3)
    (cell,) = cells_of_models(["llm-s"], [7], ["both"], tokens=21, batch_size=None, **PLACE)
    assert (cell.subject, cell.routing, cell.seq_len, cell.batch_size) == ("model", "natural", 7, 3)
