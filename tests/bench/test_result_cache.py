"""Stored results are used for equal sources and versions."""

import json
from dataclasses import dataclass
from fractions import Fraction

import pytest

from headcount.bench import result_cache
from headcount.bench.result_cache import CallCache
from headcount.bench.targets.workers import Here


@dataclass(frozen=True)
class Inner:
    """A dataclass of plain values."""

    name: str
    a: Fraction | bool
    b: int | None
    total: bool = False


@dataclass(frozen=True)
class Outer:
    """A dataclass of dataclasses."""

    rows: list[Inner]
    facts: dict


KINDS = (Inner, Outer, Fraction)


def double(number):
    """Return a result to cache."""
    return [2 * number]


class Refusing(Here):
    """Executor that fails instead of running a call."""

    def submit(self, call, /, *args, **named):
        raise AssertionError(f"{args} was run again")


def calls(executor, stored=None):
    return CallCache(executor, ["bench/case.py"], KINDS, stored)


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
    rows = [Inner("a", Fraction(2, 3), None), Inner("b", True, 2**70, total=True)]
    outer = Outer(rows, facts={"x": [1, {"y": ""}]})
    kinds = {kind.__name__: kind for kind in KINDS}
    for one in (outer, {"Inner": 1, "b": []}, "text", None):
        stored = json.loads(json.dumps(result_cache.encode(one)))
        found = result_cache.decode(stored, kinds)
        assert result_cache.encode(found) == result_cache.encode(one) and type(found) is type(one)
    assert result_cache.decode(result_cache.encode(outer), kinds) == outer
