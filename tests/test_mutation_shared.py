"""What is computed once for several tests is noted for each of them, where mutmut notes which test runs what."""

import functools

from tests import mutation_shared

pytest_plugins = "pytester"

TESTS = """
import functools
import pytest
from tests import mutation_shared

def runs(name):
    mutation_shared.noted().add(name)
    return name

runs("import")

@pytest.fixture(scope="module")
def shared():
    return runs("fixture")

@functools.cache
def cached(n):
    return runs(f"cache of {n}")

@functools.lru_cache
def kept():
    return runs("least recently used")

@functools.lru_cache(maxsize=3, typed=True)
def few():
    return runs("few")

def test_first(shared):
    assert cached(3) == cached(3) and cached(5)

def test_second(shared):
    assert runs("own") and cached(3)

def test_third():
    assert kept() and few()

def test_fourth():
    assert kept() and few()

def test_last():
    cached.cache_clear()
    assert cached.cache_info().currsize == 0
    import theirs
    assert type(theirs.kept).__module__ == "functools"
"""


class Collector:
    """As mutmut's: a test is given what was seen until it is torn down."""

    def __init__(self, seen):
        self.seen, self.found = seen, {}

    def pytest_runtest_teardown(self, item):
        self.found[item.name] = set(self.seen)
        self.seen.clear()


def test_a_test_is_given_what_ran_for_it_and_what_ran_once_for_it_and_others(pytester, monkeypatch):
    collector = Collector(set())
    monkeypatch.setattr(mutation_shared, "noted", lambda: collector.seen)
    for name in ("cache", "lru_cache"):
        monkeypatch.setattr(functools, name, getattr(functools, name))
    pytester.makepyfile(test_once=TESTS, theirs="import functools\n\nkept = functools.cache(len)")
    monkeypatch.setattr(mutation_shared, "OURS", ("test_once",))
    pytester.inline_run("-p", "no:cacheprovider", plugins=[mutation_shared, collector]).assertoutcome(passed=5)
    always = {"import"}
    assert collector.found == {
        "test_first": always | {"fixture", "cache of 3", "cache of 5"},
        "test_second": always | {"fixture", "cache of 3", "own"},
        "test_third": always | {"least recently used", "few"},
        "test_fourth": always | {"least recently used", "few"},
        "test_last": always,
    }


def test_nothing_is_noted_and_caches_are_pythons_where_mutants_are_tried(monkeypatch):
    monkeypatch.setenv("MUTANT_UNDER_TEST", "headcount.bench.case.x_of__mutmut_1")
    before = functools.cache, functools.lru_cache
    monkeypatch.setattr(functools, "cache", None)
    monkeypatch.setattr(functools, "lru_cache", None)
    mutation_shared.pytest_load_initial_conftests()
    assert mutation_shared.noted() is None and (functools.cache, functools.lru_cache) == before
