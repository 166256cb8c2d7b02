"""headcount routing --example: the task, the effect of each loss, and specialised experts."""

import json

import pytest

from headcount.bench import env, records
from headcount.bench.counters.run_context import one_thread
from headcount.bench.routing import example
from headcount.bench.routing.__main__ import main
from headcount.bench.routing.tables import SPECIALISED, expert_table


def test_targets_are_earlier_tokens_by_class():
    tokens = next(example.batches(7, 3))
    for row, answers in zip(tokens.tolist(), example.targets(tokens).tolist(), strict=True):
        # a negative index counts from the end: the sequence is cyclic
        assert answers == [row[i - " ABCD".index(example.class_of(row[i]))] for i in range(len(row))]
    assert [example.token_name(token) for token in (0, 7, 8, 31)] == ["A0", "A7", "B0", "D7"]


@pytest.fixture(scope="module")
def training_runs():
    """Return a training run without the balance loss L_a and one with it."""
    with one_thread():
        return [example.train(each) for each in ({**example.PAPER, "L_a": 0.0}, example.PAPER)]


@pytest.mark.nightly
def test_balance_loss_equalises_the_load(training_runs, figure):
    _, balanced = training_runs
    (before, least_before), (after, least_after) = (
        (one.layer.sorted_percent[0], one.layer.sorted_percent[-1]) for one in training_runs
    )
    figure(f"L_a: largest share {before:.1f} % to {after:.1f} %, smallest {least_before:.1f} % to {least_after:.1f} %")
    assert least_before < least_after <= 100 / balanced.layer.num_experts <= after < before
    assert balanced.accuracy > 0.99


@pytest.mark.nightly
def test_experts_specialise_by_class(training_runs):
    layer = training_runs[1].layer
    table = expert_table([layer], 5, 5, class_of=example.class_of)
    special = {row.token_class for row in table.rows if row.class_pmi >= SPECIALISED}
    assert sorted(special) == ["A", "B", "C", "D"]


def test_training_is_deterministic():
    one, two = (example.train(example.PAPER, steps=5) for _ in range(2))
    assert (one.loss, one.layer.counts, one.log) == (two.loss, two.layer.counts, two.log)


@pytest.fixture
def short_training(monkeypatch):
    """Limit each training run of the example to two steps."""
    monkeypatch.setattr(example, "STEPS", 2)


def run_tables(capsys, *argv):
    """Return the tables of the command by name."""
    assert main([*argv, "--format", "json", "--min-count", "1"]) == 0
    return {table["name"]: table["rows"] for table in json.loads(capsys.readouterr().out)["tables"]}


def test_example_is_recorded(short_training, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(records, "writable", lambda: tmp_path / "records")
    monkeypatch.setattr(env, "commit", lambda: {"commit": "0123456789abcdef"})
    monkeypatch.setattr(env, "device_name", {"cpu": "A CPU, 7 cores"}.get)
    tables = run_tables(capsys, "--example", "--record")
    assert [row["coefficients"] for row in tables["runs"]] == example.RUNS
    (path,) = tmp_path.glob("records/*/*.jsonl")
    ((record,), problems) = records.read(path)
    assert path.parent.name == "a-cpu-7-cores"
    assert path.name == f"{record['environment']['time'][:10]}-0123456789.jsonl"
    assert problems == [] and record["environment"]["command"][:3] == ["bench.routing", "--example", "--record"]
    assert (record["kind"], record["example"]) == ("routing", "moa")
    assert tables.keys() == {"runs", "experts", "balance"}
    assert tables == {name: record[name] for name in tables}
