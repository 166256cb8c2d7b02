"""A model is checked on its last sequence: output and gradients, on a short input and in the timed call."""

import pytest

from headcount.bench.latency import correctness
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.correctness import CorrectnessCheck
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.configs.make import make_config

WORDS = dict(model="masked_lm", attention="mha", d_model=16, num_heads=2, d_ff=8, num_layers=1, vocab_size=31)
ROUTED = dict(attention="moh", num_heads=4, num_shared_heads=1, top_k=2, num_layers=2)
OUTPUT, TIMED, GRADIENTS = "the output", "the timed call's last sequence", "all gradients"


@pytest.fixture
def check(monkeypatch):
    """Return a function that checks a small model on its first tokens, and returns the result and what was checked."""

    def check(which="forward", tokens=7, **sizes):
        config = make_config(WORDS | {"max_positions": 11} | sizes)
        monkeypatch.setattr(TimingCase, "config", config)
        monkeypatch.setattr(correctness, "MODEL_TOKENS", {"cpu": tokens})
        case = TimingCase("model", "tiny", 7, 3, "float32", which, "cpu", "natural")
        one = CorrectnessCheck(make_run(case, ImplSpec("tiny", config, "fused", "subject"), CaseTensors(case, config)))
        return one.check(), [what for *_, what in one.found]

    return check


@pytest.mark.parametrize("which, tokens, found", [
    ("forward", 5, [OUTPUT]), ("both", 5, [OUTPUT, GRADIENTS]), ("forward", 7, [OUTPUT, TIMED]),
])  # fmt: skip
def test_timed_call_is_checked_where_it_is_short(which, tokens, found, check):
    result, seen = check(which, tokens)
    assert result.wrong is None and seen == found


def test_routed_model_is_checked(check):
    result, seen = check(**ROUTED)
    # seven tokens in two layers, alone and as the last of three sequences
    assert result.wrong is None and seen == [OUTPUT, TIMED]
    assert (result.choices["tokens"], result.choices["other"]) == (2 * 2 * 7, 0)


def test_wrong_timed_call_is_found(check, monkeypatch):
    plain = correctness._forward
    monkeypatch.setattr(correctness, "_forward", lambda *given: plain(*given) * (1.1 if len(given[1]) == 3 else 1))
    assert check()[0].wrong.startswith("wrong: relative error 1.0e-01 of the timed call's last sequence, ")
