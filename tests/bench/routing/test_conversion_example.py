"""python -m bench.routing --example conversion: the loss before, right after, and after training on."""

import json
from functools import partial

import pytest

from headcount.bench.routing import conversion, task
from headcount.bench.routing.__main__ import main
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
