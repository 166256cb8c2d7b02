"""Timing cases by name of layer or model, their implementations, and the dense layers to compare with."""

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import __main__ as latency
from headcount.bench.latency.implementations import layer_impls, model_impls
from headcount.models.configs.layers import LAYERS


def test_dense_layers_for_comparison():
    impls = {impl.role: impl for impl in layer_impls("moa-16K32E256D", None, "cpu")}
    mqa = impls["mqa"].config
    assert (mqa.num_heads, mqa.num_kv_heads, mqa.head_dim) == (16, 1, 256)
    assert (impls["mha"].config.num_heads, impls["mha"].config.head_dim) == (8, 64)
    assert (impls["mha-inner"].config.num_heads, impls["mha-inner"].config.num_kv_heads) == (16, 16)
    assert [impl.role for impl in layer_impls("mha-base", None, "cpu")] == ["subject"]
    assert not any(getattr(impl.config, "bias", False) for name in LAYERS for impl in layer_impls(name, None, "cpu"))


@pytest.mark.parametrize("share, active", [(100, 32), (90, 29), (75, 24), (50, 16)])
@pytest.mark.parametrize("shape, width", [("moh-32x64", 2048), ("moh-llama3", 4096)])
def test_moh_layers_use_share_of_heads(shape, width, share, active):
    impls = {(impl.role, impl.impl): impl for impl in layer_impls(f"{shape}-{share}", None, "cpu")}
    assert set(impls) == {("dense", "fused"), ("subject", "ragged"), ("mha", "fused")}
    config = impls["subject", "ragged"].config
    assert (config.num_active_heads, config.num_heads, config.d_model) == (active, 32, width)


def test_impls_by_device(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    rows = {device: layer_impls("moa-8K8E128D", None, device) for device in ("cpu", "cuda")}
    on = {device: [row.impl for row in found if row.role == "subject"] for device, found in rows.items()}
    assert on == {"cpu": ["dense-all", "grouped", "loop"], "cuda": ["dense-all", "grouped", "loop", "triton"]}
    dense = {device: [row.impl for row in found if row.role == "mqa"] for device, found in rows.items()}
    assert dense == {"cpu": ["fused"], "cuda": ["fused", "packed"]}
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device; choose from reference"):
        layer_impls("moa-8K8E128D", ["triton"], "cpu")
    requested = [spec.impl for spec in layer_impls("moa-8K8E128D", ["loop", "auto", "fused"], "cpu")]
    assert requested[:-3] == ["loop", "auto"]


@pytest.mark.parametrize("name, impls, dense", [
    ("moa-8K8E128D", ["dense-all", "grouped", "loop"], "transformer-base fused"),
    ("moa-8K32E256D", ["dense-all", "grouped", "loop"], "transformer-base fused"),
    ("moa-16K32E256D", ["loop"], "transformer-big fused"),
    ("mlm-moa-8K64E256D", ["loop"], "mlm-transformer fused"),
    ("moh-llm-b-50", ["fused", "ragged"], "llm-b fused"),
    ("moh-dit-l2-75", ["fused", "ragged"], "dit-l2 fused"),
    ("moh-vit-s-80", ["reference"], "transnext-small reference"),
    ("transformer-base", ["fused"], None),
    ("llm-s", ["fused"], None),
])  # fmt: skip
def test_model_is_timed_beside_its_dense_model(name, impls, dense):
    requested = impls if impls == ["loop"] else None
    specs = model_impls(name, requested, "cpu")
    assert [spec.label for spec in specs if spec.role == "subject"] == [f"{name} {impl}" for impl in impls]
    assert [spec.label for spec in specs if spec.role == "dense"] == ([dense] if dense else [])


def test_model_without_module_is_refused():
    with pytest.raises(UsageError, match="chinchilla-70b is a closed form only"):
        model_impls("chinchilla-70b", None, "cpu")


def cases(*argv):
    args = latency.parser().parse_args(argv)
    args.device = args.device or "cpu"
    latency.set_defaults(args)
    return latency._make_cases(args)


@pytest.mark.parametrize("argv, keys", [
    ("--layer mha-base --seq-len 7 --pass both --batch-size 3 --implementation fused",
     "layer mha-base T7 B3 both fused"),
    ("--layer mha-base --seq-len 7 --tokens 5 --pass decode", "layer mha-base T7 B1 decode"),
    ("--layer mha-base moa-8K8E128D --seq-len 10 300 --tokens 100 --pass forward --routing balanced zipf",
     "layer mha-base T10 B10 forward; layer moa-8K8E128D T10 B10 forward; layer moa-8K8E128D T10 B10 forward zipf; "
     "layer mha-base T300 B1 forward; layer moa-8K8E128D T300 B1 forward; layer moa-8K8E128D T300 B1 forward zipf"),
    ("--model mlm-transformer transformer-base --pass both --batch-size 3",
     "model mlm-transformer T128 B3 both; model transformer-base T10 B3 both"),
    ("--quick --layer mha-base", "layer mha-base T128 B4 forward"),
    ("--quick", "layer mha-base T128 B4 forward; layer moa-8K8E128D T128 B4 forward"),
    ("--model llm-s dit-s2 --seq-len 7 --tokens 21", "model llm-s T7 B3 forward; model dit-s2 T256 B1 forward; "
     "model llm-s T7 B3 both; model dit-s2 T256 B1 both"),
    ("--layer mha-base --model llm-s --seq-len 7 --pass forward", "layer mha-base T7 B146 forward; "
     "model llm-s T7 B146 forward"),
], ids=str)  # fmt: skip
def test_cases_of_options(argv, keys):
    def key(text):
        subject, name, T, B, which, *how = text.split()
        if how != ["zipf"]:
            how = ["balanced" if subject == "layer" else "natural", *how]
        return " ".join((subject, name, T, B, "float32", which, "cpu", *how))

    assert [case.key for case in cases(*argv.split())] == [key(text) for text in keys.split("; ")]


def test_unavailable_impl_is_only_estimated():
    (case,) = cases(*"--layer moa-8K32E128D --implementation triton --seq-len 7 --pass forward".split())
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device"):
        case.impls()
    assert [spec.impl for spec in case.impls(any_device=True)][0] == "triton"
