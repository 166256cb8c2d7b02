"""Results of calls kept between runs: used where every module that they came by is as it was, and nowhere else."""

import json
from fractions import Fraction

import pytest

from headcount.bench import taken
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.isolated.workers import Here
from headcount.bench.measure import measure
from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas.published import tables
from headcount.formulas.published.proofs import Search
from headcount.reports import counting, kept
from headcount.reports.facts import STORE, Facts
from headcount.reports.heat_map import Cell


def doubled(number):
    """A call that imports nothing."""
    return [2 * number]


class Refusing(Here):
    """Runs nothing."""

    def submit(self, call, /, *args, **named):
        raise AssertionError(f"{args} was run again")


@pytest.fixture
def store(monkeypatch):
    """What a run of one call stores; two modules of ours were imported."""
    names = ("headcount.bench.table", "headcount.formulas.published")
    monkeypatch.setattr(kept, "take", lambda call, *args: {"result": kept.plain(call(*args)), "modules": names})
    calls = kept.Calls(Here())
    assert calls.result(doubled, 3) == [6]
    return json.loads(calls.to_store())


def test_what_was_kept_is_not_run_again(store):
    calls = kept.Calls(Refusing(), store)
    assert calls.result(doubled, 3) == [6]
    assert json.loads(calls.to_store()) == store
    with pytest.raises(AssertionError, match="was run again"):
        calls.result(doubled, 5)


@pytest.mark.parametrize("field, value", [("sources", "0" * 64), ("versions", {"torch": "1.0"})])
def test_by_other_sources_or_versions_everything_is_run_again(field, value, store):
    stale = {**store, field: value}
    with pytest.raises(AssertionError, match="was run again"):
        kept.Calls(Refusing(), stale).result(doubled, 3)
    # how a model is counted depends on less
    assert kept.Calls(Refusing(), stale).before(doubled, 3) == [6]


def test_where_models_are_counted_otherwise_nothing_is_used(store):
    calls = kept.Calls(Refusing(), {**store, "readings": {**store["readings"], "sources": "0" * 64}})
    assert calls.before(doubled, 3) is None
    with pytest.raises(AssertionError, match="was run again"):
        calls.result(doubled, 3)


@pytest.mark.parametrize("path", ["bench/table.py", "formulas/published/__init__.py", "formulas/published/claims.toml"])
def test_a_changed_line_of_a_module_or_of_data_beside_it_changes_the_digest(path, store, monkeypatch):
    files = kept._files
    held = {found: file.read_text("utf-8") for name in store["modules"] for found, file in files(name)}
    assert path in held and "formulas/published/claims.py" not in held

    class Changed:
        def read_text(self, encoding):
            return held[path] + "#"

    monkeypatch.setattr(kept, "_files", lambda name: [(p, Changed() if p == path else f) for p, f in files(name)])
    assert kept.digest(store["modules"]) != store["sources"]


def test_a_process_says_which_modules_of_ours_it_has_imported():
    found = kept.take(doubled, 2)
    assert found["result"] == [4]
    assert {"headcount.bench.table", "headcount.reports.counting"} <= set(found["modules"])
    assert all(name.startswith("headcount.") for name in found["modules"])
    # these are in the header of the readings, one by one or by their folder
    assert not {"headcount.bench.case", "headcount.bench.counters", "headcount.models.configs.mha"} & set(
        found["modules"]
    )


def test_results_come_back_from_json_as_they_were():
    section = Section(
        Table("name", "title", [Column("a", ""), Column("b", "head", kind="fixed", digits=2)], note_column="a"),
        [Row({"a": Fraction(2, 3), "b": None}, notes=["n"], failures=[]), Row({"a": True, "b": 2**70}, total=True)],
        below=["under"],
        facts={"x": [1, {"y": ""}]},
    )
    cell = Cell("spelling", "written", "cpu", "torch", 7, None, "why", ({"what": "matmul"},))
    for one in (section, cell, Search({"T": 1, "K": 2}, 5), Search(None, 0), {"Row": 1, "b": []}, "text", None):
        there = json.loads(json.dumps(kept.plain(one)))
        assert kept.plain(kept.whole(there)) == kept.plain(one)
        assert type(kept.whole(there)) is type(one)
    assert list(kept.whole(kept.plain(Search({"T": 1, "K": 2}, 5))).counterexample) == ["T", "K"]
    assert kept.whole(kept.plain(section)).rows[0].values["a"] == Fraction(2, 3)


def test_a_case_stays_out():
    row = Row({}, case=Case.of("moa-8K8E128D"))
    assert kept.whole(kept.plain(row)).case is None


def test_every_module_of_the_stored_calls_is_there_and_every_call_is_a_function_of_counting():
    stored = Facts().stored_json(STORE)
    assert kept.digest(stored["modules"]) == stored["sources"]
    assert {"headcount.bench.derive.derived", "headcount.formulas.mae"} <= set(stored["modules"])
    for name in stored["calls"]:
        function, _, args = name.partition(" ")
        assert callable(getattr(counting, function)) and isinstance(json.loads(args), list)


def test_the_stored_readings_are_what_the_counters_read_now():
    """Of the smallest model of each table; consistency tests hold the rules that the others are judged by."""
    calls = Facts().stored_json(STORE)["calls"]
    by_table: dict[str, list] = {}
    for name, result in calls.items():
        function, _, args = name.partition(" ")
        if function == counting.rows.__name__:
            ((first, *_),) = json.loads(args)
            by_table.setdefault(first[0], []).append((Case.of(tables.load(first[0]).row(first[1]).preset), result[1]))
    assert by_table.keys() == {"moa-table1", "moa-table2", "moa-table3"}
    for of_table in by_table.values():
        case, reading = min(of_table, key=lambda pair: pair[0].ledger.macs)
        assert taken.to_keep(measure(case, registry.NAMES)) == reading
