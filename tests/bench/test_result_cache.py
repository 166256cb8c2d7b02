"""Cached results are used for equal sources, versions and cases, and checked like new ones."""

import copy
import json
from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.bench import measure, result_cache
from headcount.bench.case import Case
from headcount.bench.isolated.workers import Here
from headcount.bench.result_cache import CallCache
from headcount.bench.table import Column, Row, Section, Table

SMALL = "moa-8K8E128D"
TOOLS = ("torch", "ptflops-aten")


@pytest.fixture(autouse=True)
def empty_cache():
    result_cache.clear_cache()
    yield
    result_cache.clear_cache()


@pytest.fixture
def entry():
    """Return the counts of two counters as JSON."""
    return json.loads(json.dumps(result_cache.to_cache(measure.measure(case(), TOOLS))))


def case(**fields):
    return Case.of(SMALL, {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 7, **fields})


def test_cached_reading_is_not_read_again(entry, monkeypatch):
    first = measure.measure(case(), TOOLS)
    result_cache.clear_cache()
    monkeypatch.setattr("headcount.models.build.build", lambda *args, **named: pytest.fail("a module was built"))
    result_cache.from_cache(entry, case())
    again = measure.measure(case(), TOOLS)
    assert again.counted_params == first.counted_params
    assert [count.macs for count in again.counts] == [count.macs for count in first.counts]
    assert result_cache.to_cache(again) == entry


def test_reading_of_another_case_or_device_is_not_used(entry):
    longer = replace(case(), lengths={**case().lengths, "src_len": 11})
    result_cache.clear_cache()
    for other in (case(d_model=514), longer):
        result_cache.from_cache(entry, other)
    assert not result_cache.RESULTS
    result_cache.from_cache(entry, case())
    on_cpu = measure.measure(case(), ["torch"], device="cpu")
    assert on_cpu.counts[0].result.device == "cpu"


def test_wrong_stored_number_disagrees_with_the_rules(entry):
    wrong = copy.deepcopy(entry)
    wrong["counts"]["torch"]["macs"] += 1
    wrong["params"] -= 1
    result_cache.clear_cache()
    result_cache.from_cache(wrong, case())
    lines = measure.measure(case(), TOOLS).disagreements("it")
    assert [line.split(" ")[1] for line in lines] == ["torch", "the"]


def double(number):
    """Return a result to cache."""
    return [2 * number]


class Refusing(Here):
    """Executor that fails instead of running a call."""

    def submit(self, call, /, *args, **named):
        raise AssertionError(f"{args} was run again")


def calls(executor, stored=None):
    return CallCache(executor, ["bench/case.py"], [Section, Table, Column, Row, Fraction], stored)


@pytest.fixture
def store():
    """Return the store after a run with one call."""
    found = calls(Here())
    assert found.result(double, 3) == [6]
    return json.loads(found.to_store())


def test_stored_call_is_not_run_again(store):
    found = calls(Refusing(), store)
    assert found.result(double, 3) == [6]
    assert json.loads(found.to_store()) == store
    with pytest.raises(AssertionError, match="was run again"):
        found.result(double, 5)


@pytest.mark.parametrize("field", ["sources", "readings", "versions"])
def test_stale_store_is_not_used(field, store):
    found = calls(Refusing(), {**store, field: "0" * 64})
    with pytest.raises(AssertionError, match="was run again"):
        found.result(double, 3)
    # counters' results do not depend on the other sources
    assert found.earlier(double, 3) == ([6] if field == "sources" else None)


def test_results_survive_json():
    section = Section(
        Table("name", "title", [Column("a", ""), Column("b", "head", kind="fixed", digits=2)], note_column="a"),
        [Row({"a": Fraction(2, 3), "b": None}, notes=["n"], failures=[]), Row({"a": True, "b": 2**70}, total=True)],
        below=["under"],
        facts={"x": [1, {"y": ""}]},
    )
    kinds = {kind.__name__: kind for kind in (Section, Table, Column, Row, Fraction)}
    for one in (section, {"Row": 1, "b": []}, "text", None):
        stored = json.loads(json.dumps(result_cache.encode(one)))
        found = result_cache.decode(stored, kinds)
        assert result_cache.encode(found) == result_cache.encode(one) and type(found) is type(one)
    assert result_cache.decode(result_cache.encode(section), kinds).rows[0].values["a"] == Fraction(2, 3)
    assert result_cache.decode(result_cache.encode(Row({}, case=case())), kinds).case is None
