"""The timing cases that the options of bench.latency ask for, with their defaults."""

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import __main__ as latency


def cases(*argv, **how):
    args = latency.parser().parse_args(argv)
    args.device = args.device or "cpu"
    latency.fill(args)
    return [case.key for case in latency._cases(args, **how)]


@pytest.mark.parametrize("argv, keys", [
    ("--layer mha-base --seq-len 7 --pass both --batch-size 3 --arm fused", "layer mha-base T7 B3 both fused"),
    ("--layer mha-base --seq-len 7 --tokens 5 --pass decode", "layer mha-base T7 B1 decode"),
    ("--quick --layer mha-base", "layer mha-base T128 B4 forward"),
    ("--quick", "layer mha-base T128 B4 forward; layer moa-8K8E128D T128 B4 forward"),
    ("--model llm-s dit-s2 --seq-len 7 --tokens 21", "model llm-s T7 B3 forward; model dit-s2 T256 B1 forward; "
     "model llm-s T7 B3 both; model dit-s2 T256 B1 both"),
    ("--layer mha-base --model llm-s --seq-len 7 --pass forward", "layer mha-base T7 B146 forward; "
     "model llm-s T7 B146 forward"),
    ("--layer moa-8K32E128D moa-8K8E128D --seq-len 128 --pass forward --tokens 128 --order value",
     "layer moa-8K8E128D T128 B1 forward; layer moa-8K32E128D T128 B1 forward"),
], ids=str)  # fmt: skip
def test_cases_of_options(argv, keys):
    def key(text):
        subject, name, T, B, which, *impl = text.split()
        routing = "balanced" if subject == "layer" else "natural"
        return " ".join((subject, name, T, B, "float32", which, "cpu", routing, *impl))

    assert cases(*argv.split()) == [key(text) for text in keys.split("; ")]


def test_unavailable_impl_is_only_estimated():
    argv = "--layer moa-8K32E128D --arm triton --seq-len 7 --pass forward".split()
    with pytest.raises(UsageError, match="implementation triton needs a CUDA device"):
        cases(*argv)
    assert len(cases(*argv, installed=False)) == 1
