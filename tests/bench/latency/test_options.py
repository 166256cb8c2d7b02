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


@pytest.mark.parametrize(
    "argv, said",
    [
        ([], ("float32", ["forward", "both"], 1024, 20, None, None)),
        (["--device", "cuda"], ("bfloat16", ["forward", "both"], 16384, 20, None, None)),
        (["--dtype", "float16", "--pass", "decode"], ("float16", ["decode"], 1024, 20, None, None)),
        (["--quick"], ("float32", ["forward"], 512, 5, ["mha-base", "moa-8K8E128D"], [128])),
        (["--quick", "--layer", "moh-8x64"], ("float32", ["forward"], 512, 5, ["moh-8x64"], [128])),
        (["--quick", "--model", "llm-s"], ("float32", ["forward"], 512, 5, None, [128])),
        (["--quick", "--blocks", "7"], ("float32", ["forward"], 512, 7, ["mha-base", "moa-8K8E128D"], [128])),
    ],
    ids=str,
)
def test_what_is_not_said(argv, said):
    args = asked(*argv)
    assert (args.dtype, args.passes, args.tokens, args.blocks, args.layer, args.seq_len) == said


def test_every_layer_or_every_model_or_those_that_are_named():
    layers, models = [("layer", name) for name in LAYERS], [("model", name) for name in timed_models()]
    assert names(cases()) == names(cases("--layer", "all")) == layers
    assert names(cases("--model", "all")) == models
    assert names(cases("--model", "llm-s", "dit-s2")) == [("model", "llm-s"), ("model", "dit-s2")]
    assert names(cases("--layer", "mha-base", "--model", "llm-s")) == [("layer", "mha-base"), ("model", "llm-s")]


def test_lengths_passes_and_sizes_are_those_of_the_options():
    (case,) = cases("--layer", "mha-base", "--seq-len", "7", "--pass", "both", "--batch-size", "3", "--arm", "fused")
    assert case.key == "layer mha-base T7 B3 float32 both cpu balanced fused"
    found = cases("--layer", "mha-base", "--tokens", "1024")
    assert [(c.which, c.seq_len, c.batch_size) for c in found] == [
        (which, length, 1024 // length) for which in ("forward", "both") for length in (10, 128, 512)
    ]


def test_options_of_a_model_are_those_of_a_layer_and_it_routes_by_itself():
    shape = ["--seq-len", "7", "11", "--batch-size", "3", "--dtype", "float16", "--arm", "fused"]
    found = cases("--model", "llm-s", *shape, "--pass", "both")
    assert [case.key for case in found] == [f"model llm-s T{T} B3 float16 both cpu natural fused" for T in (7, 11)]
    (case,) = cases("--model", "dit-s2", "--pass", "forward", "--tokens", "1024", "--routing", "zipf")
    assert case.key == "model dit-s2 T256 B4 float32 forward cpu natural"


def test_of_fewer_tokens_than_a_sequence_has_there_is_one_sequence():
    argv = ["--layer", "mha-base", "--model", "llm-s", "--tokens", "5", "--seq-len", "7", "--pass", "forward"]
    assert [(case.subject, case.batch_size) for case in cases(*argv)] == [("layer", 1), ("model", 1)]


def test_the_command_line_is_that_of_the_process_unless_told(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["latency", "--list"])
    assert latency.main() == 0 and capsys.readouterr().out.startswith("layers ")


def test_routings_are_those_of_the_options_for_layers_that_choose():
    argv = ["--layer", "mha-base", "moa-8K32E128D", "--seq-len", "7", "--pass", "forward", "--routing", "zipf", "paper"]
    assert [(case.name, case.routing, case.asked) for case in cases(*argv)] == [
        ("mha-base", "zipf", None), ("moa-8K32E128D", "zipf", None), ("moa-8K32E128D", "paper", None),
    ]  # fmt: skip


def test_an_arm_that_is_nowhere_is_refused_before_anything_runs_unless_it_is_estimated():
    args = asked("--layer", "moa-8K32E128D", "--arm", "triton", "--seq-len", "7", "--pass", "forward")
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device"):
        latency._cases(args)
    assert [case.asked for case in latency._cases(args, installed=False)] == [("triton",)]


def test_the_order_is_as_given_unless_that_of_their_value_is_asked_for():
    argv = ["--layer", "moa-8K32E128D", "moa-8K8E128D", "--seq-len", "128", "--pass", "forward", "--batch-size", "128"]
    first, second = (case.name for case in cases(*argv))
    assert (first, second) == ("moa-8K32E128D", "moa-8K8E128D")
    assert [case.name for case in cases(*argv, "--order", "value")] == [second, first]
