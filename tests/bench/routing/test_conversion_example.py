"""python -m bench.routing --example conversion: the loss before, right after, and after training on."""

import copy
import json
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.routing import conversion, task
from headcount.bench.routing.__main__ import main
from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.convert import converted
from headcount.models.configs.presets import preset


@pytest.fixture(scope="module")
def trained():
    """The first part of the example, which is enough to see it."""
    return conversion.run(dense_steps=200, more_steps=80)


def test_the_loss_jumps_and_comes_back(trained):
    dense, whole, before, after, longer = trained.stages
    assert whole.loss == pytest.approx(dense.loss, rel=1e-5) and whole.accuracy == dense.accuracy
    assert before.loss > dense.loss + 0.5
    assert after.loss < dense.loss < before.loss
    assert longer.loss < dense.loss
    assert [(stage.name, stage.steps) for stage in trained.stages] == [
        ("dense", 200),
        ("converted, every head on", 200),
        ("converted", 200),
        ("converted, trained on", 280),
        ("dense, trained on", 280),
    ]


def test_what_is_skipped_is_what_the_closed_form_skips(trained):
    """2 layers, 16 tokens, 10 heads of 16 of which 4 are used: scores, values and outputs of 6 are left out."""
    assert [stage.active_heads for stage in trained.stages] == [10, 10, 4, 4, 10]
    dense, _, before, after, longer = (stage.macs for stage in trained.stages)
    assert dense == longer and before == after
    assert dense - before == 2 * 6 * (2 * 16 * 16 * 16 + 16 * 16 * 32)
    assert [(layer.num_shared, layer.top_k, layer.tokens) for layer in trained.layers] == [(2, 2, 128 * 16)] * 2


def test_the_dense_model_is_trained_on_as_if_nothing_was_converted():
    dense = build(preset(conversion.PRESET, conversion.FIELDS), seed=task.SEED)
    data = task.batches(task.SEED, task.BATCH)
    conversion._train(dense, data, 2)
    conversion._train(dense, data, 3)
    assert conversion.run(2, 3).stages[-1].loss == conversion._stage("dense", dense, 5).loss


def test_a_step_of_training_goes_down_the_task_loss_and_the_balance_loss_together():
    fields = {**conversion.FIELDS, "num_layers": 1, "num_shared_heads": 2, "top_k": 2, "balance_loss_weight": 7.0}
    model, tokens = build(preset("moh-llm-s-75", fields), seed=3).double(), next(task.batches(5, 3))
    before = copy.deepcopy(model).train()
    logits, wanted = before(tokens), task.renamed(tokens)
    (attention,) = before.layers
    routing = attention.self_attn.router.recorded.routing
    balance = losses.head_balance_loss(routing.probs, routing.indices)
    # the released code has the balance loss times its 8 routed heads
    (F.cross_entropy(logits[wanted >= 0], wanted[wanted >= 0]) + 7 * 8 * balance).backward()
    conversion._train(model, iter([tokens]), 1)
    assert not model.training
    for name, weight in before.named_parameters():
        # Adam's first step: both means are the gradient's own
        expected = weight - task.RATE * weight.grad / (weight.grad.abs() + 1e-8)
        torch.testing.assert_close(model.get_parameter(name), expected, rtol=0, atol=1e-7)


def test_it_is_the_model_that_the_table_says(trained):
    config = converted(preset(conversion.PRESET, conversion.FIELDS), shared=2, routed=2)
    assert [layer.num_heads for layer in config.layers] == [10, 10]
    (text,) = conversion.section(trained).below
    assert "80 steps take it to" in text


def test_the_command_prints_it(capsys, monkeypatch):
    monkeypatch.setattr(conversion, "run", partial(conversion.run, 2, 1))
    assert main(["--example", "conversion", "--format", "json"]) == 0
    out = capsys.readouterr()
    found = {table["name"]: table["rows"] for table in json.loads(out.out)["tables"]}
    assert set(found) == {"conversion", "routing", "heads"} and len(found["conversion"]) == 5
    assert "training a dense model for 2 steps" in out.err


@pytest.mark.parametrize("option", [["--save", "there"], ["--record"]])
def test_it_is_not_stored(option, capsys):
    assert main(["--example", "conversion", *option]) == 2
    assert capsys.readouterr().err == (
        f"python -m bench.routing: error: {option[0]} goes with --example moa or moh, not with conversion\n"
    )
