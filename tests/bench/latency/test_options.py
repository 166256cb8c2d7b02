"""What the options of bench.latency ask for: the cells, in their order, with everything that is not said."""

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import __main__ as latency
from headcount.bench.latency.implementations import timed_models
from headcount.models.configs.layers import LAYERS


def asked(*argv):
    args = latency.parser().parse_args(argv)
    args.device = args.device or "cpu"
    latency.fill(args)
    return args


def cases(*argv):
    return latency._cases(asked(*argv))


def names(found):
    return list(dict.fromkeys((case.subject, case.name) for case in found))


def test_layers_and_models_by_name_or_all():
    layers, models = [("layer", name) for name in LAYERS], [("model", name) for name in timed_models()]
    assert names(cases()) == names(cases("--layer", "all")) == layers
    assert names(cases("--model", "all")) == models
    assert names(cases("--model", "llm-s", "dit-s2")) == [("model", "llm-s"), ("model", "dit-s2")]
    assert names(cases("--layer", "mha-base", "--model", "llm-s")) == [("layer", "mha-base"), ("model", "llm-s")]


def test_options_reach_model_cases():
    shape = ["--seq-len", "7", "11", "--batch-size", "3", "--dtype", "float16", "--arm", "fused"]
    found = cases("--model", "llm-s", *shape, "--pass", "both")
    assert [case.key for case in found] == [f"model llm-s T{T} B3 float16 both cpu natural fused" for T in (7, 11)]
    (case,) = cases("--model", "dit-s2", "--pass", "forward", "--tokens", "1024", "--routing", "zipf")
    assert case.key == "model dit-s2 T256 B4 float32 forward cpu natural"


def test_unavailable_impl_is_only_estimated():
    args = asked("--layer", "moa-8K32E128D", "--arm", "triton", "--seq-len", "7", "--pass", "forward")
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device"):
        latency._cases(args)
    assert [case.asked for case in latency._cases(args, installed=False)] == [("triton",)]
