"""python -m bench.routing --example: the tasks, what each auxiliary loss does, experts and heads that specialise."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headcount.bench import env, records
from headcount.bench.routing import example as routing_example
from headcount.bench.routing import task as routing_task
from headcount.bench.routing import training_log
from headcount.bench.routing.__main__ import main
from headcount.bench.routing.tables import SPECIALISED, class_section, expert_section
from headcount.models import losses
from headcount.models.build import build

DEFAULT_AND_NAMED = {"moa": ["--example"], "moh": ["--example", "moh"]}


def asked(row, i):
    """The place that token i of a sequence asks for, before its first token below 0."""
    return i - " ABCD".index(routing_task.class_of(row[i]))


def test_the_answer_is_as_many_places_back_as_the_class_says():
    tokens = next(routing_task.batches(7, 3))
    for row, wanted in zip(tokens.tolist(), routing_task.in_a_ring(tokens).tolist(), strict=True):
        assert wanted == [row[asked(row, i)] for i in range(len(row))]
    assert [routing_task.token_name(token) for token in (0, 7, 8, 31)] == ["A0", "A7", "B0", "D7"]


def test_a_class_renames_what_it_asks_for():
    tokens, names = next(routing_task.batches(7, 200)), {}
    for row, wanted in zip(tokens.tolist(), routing_task.renamed(tokens).tolist(), strict=True):
        for i, answer in enumerate(wanted):
            if asked(row, i) < 0:
                assert answer == routing_task.NO_ANSWER
            else:
                names.setdefault(routing_task.class_of(row[i]), {}).setdefault(row[asked(row, i)], set()).add(answer)
    # one new name for each token, no two alike, and other ones in another class
    for found in names.values():
        assert sorted(name for (name,) in found.values()) == list(range(routing_task.CLASSES * routing_task.WORDS))
    assert len({str(sorted(found.items())) for found in names.values()}) == routing_task.CLASSES


@pytest.fixture(scope="module", params=["moa", "moh"])
def trained(request):
    """The two runs of an example that differ in its balance loss alone, with that loss last."""
    # heads have learnt it at half their steps, experts have not
    steps = routing_example.EXAMPLES["moh"].steps // 2 if request.param == "moh" else None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    chosen = routing_example.EXAMPLES[request.param].chosen
    balance = next(iter(chosen))
    found = [routing_example.train(request.param, each, steps) for each in ({**chosen, balance: 0.0}, chosen)]
    torch.set_num_threads(threads)
    return found


def test_the_balance_loss_spreads_the_load_and_the_statement_says_so(trained, figure):
    plain, balanced = trained
    lines = routing_example.statement(trained)
    figure(lines[0])
    (before, least_before), (after, least_after) = (
        [100 * float(of(one.layer.shares)) for of in (max, min)] for one in (plain, balanced)
    )
    assert least_before < least_after <= 100 / balanced.layer.num_experts <= after < before
    assert f"the largest share falls from {before:.1f} % to {after:.1f} %, the smallest share rises from" in lines[0]
    assert balanced.accuracy > 0.99


def test_experts_and_heads_specialise_by_class(trained):
    layer = trained[1].layer
    section = expert_section([layer], 5, 5, class_of=routing_task.class_of)
    routed = [row.values for row in section.rows if row.values["share"] is not None]
    classes = {values["class"] for values in routed if values["class_pmi"] >= SPECIALISED}
    assert classes == {"A", "B", "C", "D"}
    assert "specialise" in section.below[0]


def test_the_choices_of_the_classes_are_all_choices(trained):
    layer = trained[1].layer
    rows = [row.records[0] for row in class_section(layer, routing_task.class_of).rows]
    assert [row["class"] for row in rows] == ["A", "B", "C", "D"]
    numbers = range(layer.num_shared, layer.num_shared + layer.num_experts)
    by = f"by_{layer.unit}"
    assert [sum(row[by].get(number, 0) for row in rows) for number in numbers] == layer.counts
    assert all(sum(row[by].values()) == row["choices"] for row in rows)


@pytest.mark.parametrize("name", routing_example.EXAMPLES)
def test_training_is_deterministic(name):
    coefficients = routing_example.EXAMPLES[name].chosen
    one, two = (routing_example.train(name, coefficients, steps=5) for _ in range(2))
    assert all(torch.equal(one.state[key], two.state[key]) for key in one.state)
    assert (one.loss, one.layer.counts, one.log) == (two.loss, two.layer.counts, two.log)


def test_the_load_of_the_first_step_and_of_every_so_many_is_logged_of_its_own_batch(monkeypatch):
    monkeypatch.setattr(routing_task, "LOGGED_EVERY", 3)
    example = routing_example.EXAMPLES["moh"]
    log = routing_example.train("moh", example.chosen, steps=7).log
    assert [step for step, _ in log] == [1, 3, 6]
    model = build(example.config(example.chosen), seed=routing_task.SEED).train()
    model(next(routing_task.batches(routing_task.SEED, routing_task.BATCH)))
    assert log[0][1] == {path: counts.tolist() for path, counts in losses.tokens_per_expert(model).items()}


def test_each_pair_of_coefficients_is_trained_as_long_as_is_asked_for_on_one_thread_and_told(monkeypatch):
    asked, said, threads = [], [], torch.get_num_threads()

    def train(name, coefficients, steps):
        asked.append((name, steps, torch.get_num_threads()))
        return coefficients

    monkeypatch.setattr(routing_example, "train", train)
    try:
        torch.set_num_threads(3)
        assert routing_example.run("moh", 7, said.append) == [{"L_b": 0.0}, {"L_b": 0.01}]
        assert asked == [("moh", 7, 1)] * 2
        assert said == ["training with no auxiliary loss", "training with 0.01 L_b"]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def run(capsys, *argv):
    return main(argv), *capsys.readouterr()


@pytest.mark.parametrize("name, units", [("moa", "experts"), ("moh", "heads")])
def test_the_example_runs_and_what_it_saves_can_be_looked_at_again(name, units, tmp_path, capsys, monkeypatch):
    run_short = routing_example.run
    monkeypatch.setattr(routing_example, "run", lambda name, say: run_short(name, 2, say))
    argv = [*DEFAULT_AND_NAMED[name], "--save", str(tmp_path / "d"), "--format", "json", "--least", "1"]
    code, out, err = run(capsys, *argv)
    assert code == 0
    runs, experts, classes, balance = json.loads(out)["tables"]
    assert [row["coefficients"] for row in runs["rows"]] == routing_example.EXAMPLES[name].runs
    assert experts["name"] == units and balance["rows"][0]["step"] == 1
    command = next(line for line in err.splitlines() if line.startswith("look")).partition("bench.routing ")[2]
    code, out, _ = run(capsys, *command.split(), "--format", "json", "--least", "1")
    again = json.loads(out)["tables"][1]["rows"]
    assert code == 0
    assert [row["count"] for row in again] == [row["count"] for row in experts["rows"]]
    assert [row["macs"] for row in again] == [row["macs"] for row in experts["rows"]]


def test_what_is_saved_is_what_was_trained_and_looked_at(tmp_path):
    log = [(1, {"layers.0.attn": [3, 5]}), (50, {"layers.0.attn": [4, 4]})]
    outcome = SimpleNamespace(log=log, state={"weight": torch.arange(3.0)})
    words = routing_example.save("moa", outcome, tmp_path / "d").split()
    named = {key: Path(value) for key, value in zip(words, words[1:], strict=False) if value.startswith(str(tmp_path))}
    assert training_log.read(named["--log"]) == log
    assert torch.equal(torch.load(named["--checkpoint"], weights_only=True)["weight"], outcome.state["weight"])
    lines = named["--tokens"].read_text().splitlines()
    assert [[int(word) for word in line.split()] for line in lines] == routing_task.held_out().tolist()


def test_every_pair_of_table_7_is_trained_and_each_loss_has_its_line():
    example = routing_example.EXAMPLES["moa"]
    labels = ["0.01 L_a", "0.01 L_z", "0.001 L_z", "0.01 L_a + 0.001 L_z", "0.01 L_a + 0.01 L_z"]
    assert [routing_example.label(coefficients) for coefficients in example.runs] == labels
    outcomes = [routing_example.train("moa", coefficients, steps=1) for coefficients in example.runs]
    starts = [line.partition(")")[0] for line in routing_example.statement(outcomes)]
    assert starts == [
        "With 0.01 L_a (beside 0.001 L_z",
        "With 0.001 L_z (beside 0.01 L_a",
        "With 0.01 L_a (beside 0.01 L_z",
        "With 0.01 L_z (beside 0.01 L_a",
    ]
    assert routing_example.chosen("moa", outcomes).coefficients == {"L_a": 0.01, "L_z": 0.001}


def test_moves_in_words():
    said = [routing_example._moves("it", 2, other) for other in (1, 2, 3)]
    assert said == ["it falls from 2.000 to 1.000", "it stays at 2.000", "it rises from 2.000 to 3.000"]
    # no fall that the figures do not show
    assert routing_example._moves("it", 2.0001, 2) == "it stays at 2.000"
    assert routing_example.label({"L_b": 0.0}) == "no auxiliary loss"


def test_an_example_is_stored_with_what_it_found_and_where(monkeypatch, tmp_path, capsys):
    train = routing_example.train
    monkeypatch.setattr(routing_example, "train", lambda name, coefficients, steps: train(name, coefficients, 2))
    monkeypatch.setattr(records, "writable", lambda: tmp_path)
    monkeypatch.setattr(env, "commit", lambda: "0123456789abcdef")
    monkeypatch.setattr(env, "device_name", {"cpu": "A CPU, 7 cores"}.get)
    assert main(["--example", "moh", "--record", "--least", "1", "--format", "json"]) == 0
    printed = {table["name"]: table["rows"] for table in json.loads(capsys.readouterr().out)["tables"]}
    (path,) = tmp_path.glob("*/*.jsonl")
    ((record,), problems) = records.read(path)
    assert path.parent == tmp_path / "a-cpu-7-cores"
    assert path.name == f"{record['environment']['time'][:10]}-0123456789.jsonl"
    assert problems == [] and record["environment"]["command"] == [
        "bench.routing", "--example", "moh", "--record", "--least", "1", "--format", "json"
    ]  # fmt: skip
    assert (record["kind"], record["example"]) == ("routing", "moh")
    for name in ("runs", "classes", "balance"):
        assert record[name] == printed[name]
    for stored, row in zip(record["heads"], printed["heads"], strict=True):
        assert {key: stored[key] for key in row} == row
        if not row["shared"]:
            # each token with its PMI, by the example's own name for it
            for (token, value), text in zip(stored["top_tokens"], stored["tokens"].split(") "), strict=True):
                assert text.removesuffix(")") == f"{routing_example.task.token_name(token)} ({value:.1f}"
