"""What is timed: layers and models by name, the arms of each, and the dense layers beside them."""

from dataclasses import replace

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import measure
from headcount.bench.latency.case_tensors import DTYPES
from headcount.bench.latency.implementations import ImplSpec, layer_impls, model_impls, skips
from headcount.bench.latency.roofline import Peaks
from headcount.bench.latency.timing_cases import ELEMENT_BYTES, TimingCase, layer_cases, model_cases
from headcount.models.configs.base import ConfigError
from headcount.models.configs.layers import LAYERS, layer
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset

PEAKS = Peaks(1e9, 1e9, "made up")


TINY = dict(seq_len=7, batch_size=2, dtype="float64", which="forward", device="cpu", routing="zipf")
PLACE = dict(dtype="float32", device="cpu")


def test_layers_have_the_dense_layers_beside_them_that_they_are_judged_against():
    impls = {impl.role: impl for impl in layer_impls("moa-16K32E256D", None, "cpu")}
    mqa = impls["mqa"].config
    assert (mqa.num_heads, mqa.num_kv_heads, mqa.head_dim) == (
        16,
        1,
        256,
    )
    assert (impls["mha"].config.num_heads, impls["mha"].config.head_dim) == (8, 64)
    assert (impls["mha-inner"].config.num_heads, impls["mha-inner"].config.num_kv_heads) == (16, 16)
    assert [impl.role for impl in layer_impls("mha-base", None, "cpu")] == ["subject"]
    assert not any(getattr(impl.config, "bias", False) for name in LAYERS for impl in layer_impls(name, None, "cpu"))


@pytest.mark.parametrize("share, active", [(100, 32), (90, 29), (75, 24), (50, 16)])
@pytest.mark.parametrize("shape, width", [("moh-32x64", 2048), ("moh-llama3", 4096)])
def test_moh_layers_use_the_share_of_heads_in_their_name(shape, width, share, active):
    impls = {(impl.role, impl.impl): impl for impl in layer_impls(f"{shape}-{share}", None, "cpu")}
    assert set(impls) == {("dense", "fused"), ("subject", "ragged"), ("mha", "fused")}
    config = impls["subject", "ragged"].config
    assert (config.num_active_heads, config.num_heads, config.d_model) == (active, 32, width)


def test_an_arm_skips_heads_in_a_layer_that_has_it_and_does_so():
    found = [skips("moh-32x64-50", impl) for impl in ("ragged", "fused", "reference", "auto")]
    assert found == [True, False, False, False]
    # experts that are not used are left out by MoA's own form, and dense layers use every head
    assert not skips("moa-8K8E128D", "grouped") and not skips("mha-base", "ragged")


def test_what_decodes_are_the_arms_that_take_masks(monkeypatch):
    case = TimingCase("layer", "moh-32x64-50", **TINY | {"which": "decode"})
    assert [spec.impl for spec in case.impls()] == ["fused", "ragged", "fused"]
    config = layer("moh-32x64-50")
    blind = [impl._replace(masks=impl.name != "ragged") for impl in config.implementations]
    monkeypatch.setattr(type(config), "implementations", tuple(blind))
    assert [spec.impl for spec in case.impls()] == ["fused", "fused"]


def test_an_arm_is_timed_where_it_runs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    on = {device: [spec.impl for spec in layer_impls("moa-8K8E128D", None, device)][:-3] for device in ("cpu", "cuda")}
    assert on["cpu"] == ["dense-all", "grouped", "loop"]
    assert on["cuda"] == ["dense-all", "grouped", "loop", "triton"]
    assert [spec.impl for spec in layer_impls("moa-8K8E128D", None, None)][:-3] == on["cuda"]
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device; choose from reference"):
        layer_impls("moa-8K8E128D", ["triton"], "cpu")


def test_few_tokens_are_also_timed_by_the_arm_for_few_rows():
    names = [[spec.impl for spec in layer_impls("moa-8K8E128D", None, "cpu", tokens)] for tokens in (64, 65)]
    assert "gathered" in names[0] and "gathered" not in names[1]
    step = TimingCase("layer", "moa-8K8E128D", **TINY | {"which": "decode", "seq_len": 512, "batch_size": 32})
    assert "gathered" in [spec.impl for spec in step.impls()]
    whole = TimingCase("layer", "moa-8K8E128D", **TINY | {"seq_len": 512, "batch_size": 32})
    assert "gathered" not in [spec.impl for spec in whole.impls()]


def test_names_that_do_not_exist_name_those_that_do():
    with pytest.raises(ConfigError, match="unknown layer 'x'; headcount latency --list names all"):
        layer_impls("x", None, "cpu")
    with pytest.raises(UsageError, match="unknown model 'x'; headcount latency --list names all"):
        model_impls("x", None, "cpu")
    with pytest.raises(UsageError, match="mha has no implementation loop; choose from reference, fused, auto"):
        layer_impls("mha-base", ["loop"], "cpu")


def test_a_model_without_a_module_is_not_timed(monkeypatch):
    monkeypatch.setattr(type(preset("mae-7").attention), "module", None)
    with pytest.raises(UsageError, match="mae-7 is a closed form only; headcount latency --list names the models"):
        model_impls("mae-7", None, "cpu")


def test_cells_are_every_combination_and_routing_is_swept_for_routed_layers():
    shape = dict(tokens=100, batch_size=None, dtype="float32", device="cpu", asked=None)
    found = list(layer_cases(["mha-base", "moa-8K8E128D"], [10, 300], ["forward"], ["balanced", "zipf"], **shape))
    assert [(c.name, c.seq_len, c.batch_size, c.routing) for c in found] == [
        ("mha-base", 10, 10, "balanced"),
        ("moa-8K8E128D", 10, 10, "balanced"),
        ("moa-8K8E128D", 10, 10, "zipf"),
        ("mha-base", 300, 1, "balanced"),
        ("moa-8K8E128D", 300, 1, "balanced"),
        ("moa-8K8E128D", 300, 1, "zipf"),
    ]
    assert len({c.key for c in found}) == len(found)
    models = list(model_cases(["mlm-transformer", "transformer-base"], None, ["both"], **shape))
    assert [c.seq_len for c in models] == [128, 10]


@pytest.mark.parametrize("which", ["forward", "both"])
def test_a_model_of_images_is_timed_at_its_own_number_of_patches(which, monkeypatch):
    sizes = dict(d_model=12, num_heads=2, num_layers=1, latent_size=6, num_classes=5)
    config = make_config(PRESETS["dit-s2"] | sizes)
    shape = dict(tokens=18, batch_size=None, dtype="float32", device="cpu", asked=None)
    monkeypatch.setattr("headcount.bench.latency.timing_cases.preset", lambda name: config)
    (case,) = model_cases(["tiny"], None, [which], **shape)
    assert (case.seq_len, case.batch_size) == (9, 2)
    monkeypatch.setattr(TimingCase, "impls", lambda self: [ImplSpec("tiny", config, "fused", "subject")])
    (record,) = measure.measure_case(case, PEAKS, blocks=2)
    assert record["status"] == "timed"


def test_models_have_the_packed_arm():
    assert [spec.impl for spec in model_impls("moh-llm-s-75", None, "cpu")] == ["fused", "ragged"]
    assert [spec.impl for spec in model_impls("moh-dit-s2-75", None, "cpu")] == ["fused", "ragged"]
    assert {(spec.name, spec.role) for spec in model_impls("moh-dit-s2-75", None, "cpu")} == {
        ("moh-dit-s2-75", "subject")
    }


def test_arms_that_are_asked_for_by_name_are_all_that_is_timed():
    found = layer_impls("moa-8K8E128D", ["loop", "auto", "fused"], "cpu")
    assert [spec.impl for spec in found if spec.role == "subject"] == ["loop", "auto"]


def test_arms_that_a_layer_does_not_have_are_named_with_those_that_it_has():
    with pytest.raises(UsageError, match="^mha has no implementation loop, fast; choose from reference, fused, auto$"):
        layer_impls("mha-base", ["loop", "fast"], "cpu")


def test_a_number_has_as_many_bytes_as_torch_gives_it():
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == ELEMENT_BYTES
    assert TimingCase("layer", "mha-base", **TINY | {"dtype": "bfloat16"}).element_bytes == 2


def test_a_model_has_every_length_and_a_layer_its_new_tokens_and_all_keys():
    model = TimingCase("model", "transformer-base", **TINY)
    assert model.at_lengths(model.config).lengths == {"batch_size": 2, "src_len": 7, "tgt_len": 7}
    step = TimingCase("layer", "mha-base", **TINY | {"which": "decode"})
    assert step.at_lengths(step.config).lengths == {"batch_size": 2, "tgt_len": 1, "src_len": 7}
    assert (model.at_lengths(model.config).name, step.at_lengths(step.config).name) == ("transformer-base", "mha-base")


def test_a_key_says_all_that_tells_a_cell_from_another():
    case = TimingCase("layer", "mha-base", **TINY)
    assert case.key == "layer mha-base T7 B2 float64 forward cpu zipf"
    assert replace(case, asked=("fused", "loop")).key == f"{case.key} fused+loop"
    assert replace(case, asked=("loop",), blocks=60).key == f"{case.key} loop again in 60 blocks"


def test_a_layer_is_told_its_routing_and_a_model_routes_its_tokens_itself():
    (case,) = layer_cases(["mha-base"], [7], ["both"], ["zipf"], tokens=21, batch_size=None, **PLACE)
    assert (case.subject, case.routing, case.seq_len, case.batch_size) == ("layer", "zipf", 7, 3)
    (case,) = model_cases(["llm-s"], [7], ["both"], tokens=21, batch_size=None, **PLACE)
    assert (case.subject, case.routing, case.seq_len, case.batch_size) == ("model", "natural", 7, 3)
