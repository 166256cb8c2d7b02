"""A model is checked block by block on its last sequence: a short input, its gradients, and the timed call."""

import pytest
import torch

from headcount.bench.latency import correctness, replay
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.correctness import MIN_BOUND, CorrectnessCheck
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.replay import find_blocks
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS

WORDS = dict(model="masked_lm", attention="mha", d_model=16, num_heads=2, d_ff=8, num_layers=1, vocab_size=31)
ROUTED = dict(attention="moh", num_heads=4, num_shared_heads=1, top_k=2, num_layers=2)
DEEP = 12
STEP = MIN_BOUND["float32"]


@pytest.fixture
def check(monkeypatch):
    """Return a function that checks a small model on its first tokens, and returns the result and what was checked.

    ``hook`` is called behind the block ``at``, or behind every block of the checked implementation.
    """

    def check(which="forward", tokens=7, hook=None, at=None, **sizes):
        config = make_config(WORDS | {"max_positions": 11} | sizes)
        monkeypatch.setattr(TimingCase, "config", config)
        monkeypatch.setattr(correctness, "MODEL_TOKENS", {"cpu": tokens})
        case = TimingCase("model", "tiny", 7, 3, "float32", which, "cpu", "natural")
        run = make_run(case, ImplSpec("tiny", config, "fused", "subject"), CaseTensors(case, config))
        for index, block in enumerate(find_blocks(run.module)):
            if hook and at in (None, index):
                block.register_forward_hook(hook)
        one = CorrectnessCheck(run)
        return one.check(), [what for *_, what in one.found]

    return check


OUTPUTS = ["what block 1 reads", "the output"]
TIMED = [f"{what} in the timed call" for what in OUTPUTS]


@pytest.mark.parametrize("which, tokens, timed", [("forward", 5, []), ("both", 5, []), ("forward", 7, TIMED)])
def test_timed_call_is_checked_where_it_is_short(which, tokens, timed, check):
    result, seen = check(which, tokens)
    assert result.wrong is None
    gradients = [what for what in seen if "gradient" in what]
    assert [what for what in seen if what not in gradients] == OUTPUTS + timed
    assert bool(gradients) == (which == "both")


def test_gradients_of_inputs_and_parts_are_checked(check):
    _, seen = check("both", 5, num_layers=2)
    reads = ["the gradient of what block 1 reads", "the gradient of what block 2 reads"]
    blocks = [f"the gradients of encoder.layers.{i}{part}" for i in (0, 1) for part in ("", ".self_attn")]
    assert {*reads, *blocks, "the gradients of the other modules"} < {*seen}


def test_routed_model_is_checked(check):
    result, seen = check(**ROUTED)
    # seven tokens in two layers, alone and as the last of three sequences
    assert result.wrong is None and seen[-1] == "the output in the timed call"
    assert (result.choices["tokens"], result.choices["other"]) == (2 * 2 * 7, 0)


def shift(size, least_batch=1):
    """Return a hook that adds an error of relative size ``size`` to the output of a block."""

    def hook(block, args, out):
        error = torch.ones_like(out) * torch.linalg.vector_norm(out.detach()) / out.numel() ** 0.5
        return out + size * error if out.shape[0] >= least_batch else out

    return hook


def test_errors_do_not_add_up_over_depth(check):
    """Every block is off by most of what is allowed; from end to end that would be several times too much."""
    result, _ = check("both", num_layers=DEEP, hook=shift(0.7 * STEP))
    assert result.wrong is None
    assert 0.3 * STEP < result.error <= STEP


@pytest.mark.parametrize("at", [0, DEEP // 2, DEEP - 1])
def test_one_wrong_block_is_found(at, check):
    result, _ = check(num_layers=DEEP, hook=shift(20 * STEP), at=at)
    place = f"what block {at + 2} reads" if at < DEEP - 1 else "the output"
    assert result.wrong.startswith("wrong: relative error") and f" of {place}" in result.wrong


@pytest.mark.parametrize("at", [0, DEEP // 2, DEEP - 1])
def test_one_wrong_gradient_is_found(at, check):
    """The output is right, and what flows back through one block is not."""
    result, _ = check("both", num_layers=DEEP, at=at, hook=lambda block, args, out: out + 1e-3 * (out - out.detach()))
    assert "gradient" in result.what and result.wrong


def test_wrong_timed_call_is_found(check):
    result, _ = check(hook=shift(20 * STEP, least_batch=3))
    assert result.what == "the output in the timed call" and result.wrong


@pytest.mark.parametrize("name", MODEL_FIELDS)
def test_blocks_of_every_model(name):
    """Blocks hold all attention layers, and no block holds another."""
    model = build(make_config(MODEL_FIELDS[name]), device="meta")
    blocks = find_blocks(model)
    inside = [module for block in blocks for module in block.modules()]
    assert len(inside) == len({*inside})
    attention = [module for path, module in model.named_modules() if path.endswith(("self_attn", "cross_attn"))]
    assert attention and {*attention} <= {*inside}


@pytest.mark.parametrize("width", [355, 512, 1024])
def test_drawn_gradients_do_not_cancel_over_tokens(width):
    drawn = replay._normals(torch.zeros(10, width))
    # the sum of ten independent rows is sqrt(10) times as long as one
    assert torch.linalg.vector_norm(drawn.sum(0)) > 2 * torch.linalg.vector_norm(drawn[0])


@pytest.mark.parametrize("subject, bound", [("layer", 0.004), ("model", 0.05)])
def test_replay_of_a_model_may_differ_by_more_than_a_block(subject, bound):
    case = TimingCase(subject, "any", 7, 3, "bfloat16", "both", "cuda", "balanced")
    assert correctness.replay_bound(case, 0.004) == bound
