"""Stored results are used for equal sources and versions."""

import json
from fractions import Fraction

import pytest

from headcount.bench import result_cache
from headcount.bench.case import Case
from headcount.bench.isolated.workers import Here
from headcount.bench.result_cache import CallCache
from headcount.bench.table import Column, Row, Section, Table


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


@pytest.mark.parametrize("field", ["sources", "versions"])
def test_stale_store_is_not_used(field, store):
    found = calls(Refusing(), {**store, field: "0" * 64})
    with pytest.raises(AssertionError, match="was run again"):
        found.result(double, 3)


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
    assert result_cache.decode(result_cache.encode(Row({}, case=Case.of("moa-8K8E128D"))), kinds).case is None
