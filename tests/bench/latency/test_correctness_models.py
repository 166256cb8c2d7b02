"""A whole model is checked on its last sequence: output and gradients, in short and in the timed call."""

import pytest

from headcount.bench.latency import correctness
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.correctness import CorrectnessCheck
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS

SHAPE = dict(seq_len=7, batch_size=3, dtype="float32", device="cpu", routing="natural")
WORDS = dict(model="masked_lm", attention="mha", d_model=16, num_heads=2, d_ff=8, num_layers=1, vocab_size=31)
IMAGES = PRESETS["dit-s2"] | dict(d_model=12, num_heads=2, num_layers=1, latent_size=6, num_classes=5)
OUTPUT, TIMED = ("the output", 2.5), ("the timed call's last sequence", 2.5)
GRADIENTS = ("all gradients", 12.5)
"""What is checked, and how many times a layer's cap it may be off."""


@pytest.fixture
def checked(monkeypatch):
    """A function that checks a small model: the result, what was checked, and the shapes that the model was called
    with."""

    def check(config, kept, **changes):
        monkeypatch.setattr(TimingCase, "config", config)
        monkeypatch.setattr(correctness, "MODEL_TOKENS", {"cpu": kept})
        case = TimingCase("model", "tiny", **SHAPE | changes)
        run, shapes = make_run(case, ImplSpec("tiny", config, "fused", "subject"), CaseTensors(case, config)), []
        run.module.register_forward_pre_hook(lambda module, args: shapes.append([tuple(x.shape) for x in args]))
        one = CorrectnessCheck(run)
        with monkeypatch.context() as patched:
            patched.setattr(correctness, "error_bound", lambda dtype, plain, times: times)
            one.check()
        return CorrectnessCheck(run).check(), [(what, times) for _, times, what in one.found], shapes

    return check


def words():
    return make_config(WORDS | {"max_positions": 11})


@pytest.mark.parametrize("which, kept, found, shapes", [
    ("forward", 5, [OUTPUT], [[(1, 5)]]), ("both", 5, [OUTPUT, GRADIENTS], [[(1, 5)]]),
    ("forward", 7, [OUTPUT, TIMED], [[(1, 7)], [(3, 7)]]),
])  # fmt: skip
def test_long_sequence_is_shortened(which, kept, found, shapes, checked):
    result, seen, called = checked(words(), kept, which=which)
    assert result.wrong is None and (seen, called) == (found, shapes * 2)


def test_routed_model_is_checked(checked):
    routed = dict(attention="moh", num_heads=4, num_shared_heads=1, top_k=2, max_positions=11, num_layers=2)
    result, seen, _ = checked(make_config(WORDS | routed), 7, which="forward")
    assert result.wrong is None and seen == [OUTPUT, TIMED]
    # seven tokens in two layers, alone and as the last of three sequences
    assert (result.tokens, result.other) == (2 * 2 * 7, 0)


def test_wrong_timed_call_is_found(checked, monkeypatch):
    plain = correctness._plainly

    def off_by_a_tenth(module, *inputs):
        out = plain(module, *inputs)
        return 1.1 * out if len(inputs[0]) == 3 else out

    monkeypatch.setattr(correctness, "_plainly", off_by_a_tenth)
    result, *_ = checked(words(), 7, which="forward")
    assert result.wrong.startswith("wrong: relative error 1.0e-01 of the timed call's last sequence, ")
