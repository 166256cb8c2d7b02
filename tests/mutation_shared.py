"""A plugin of pytest: what fixtures, caches and modules of tests computed once is noted for every test that uses it.

mutmut gives a function the tests that it saw run it. What is computed for the first test and kept, later ones use
without running it, and of its mutants they would not be asked.
"""

import functools
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_CACHE, _LRU_CACHE = functools.cache, functools.lru_cache
OURS = ("headcount", "tests")
_ran: dict[Hashable, set[str]] = {}
"""What ran for a fixture's value, or while a module of tests was imported."""


def noted() -> set[str] | None:
    """The functions that mutmut has seen since the last test; None where it notes none."""
    if os.environ.get("MUTANT_UNDER_TEST") != "stats":
        return None
    from mutmut.state import state

    return state()._stats


@contextmanager
def _noting(seen: set[str], once: set[str]) -> Iterator[None]:
    """Add to ``once`` what runs within."""
    before = set(seen)
    seen.clear()
    try:
        yield
    finally:
        once |= seen
        seen |= before


def _noting_cache(function: Callable, cached: Callable) -> Callable:
    """``cached`` with what ``function`` ran when a value was made, noted again whenever that value is taken.

    Other people's caches stay theirs: torch reads the calls that it is in.
    """
    if (getattr(function, "__module__", None) or "").partition(".")[0] not in OURS:
        return cached
    ran: dict[Hashable, set[str]] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        seen = noted()
        if seen is None:
            return cached(*args, **kwargs)
        once = ran.setdefault((args, tuple(kwargs.items())), set())
        with _noting(seen, once):
            value = cached(*args, **kwargs)
        seen |= once
        return value

    call.cache_clear, call.cache_info, call.cache_parameters = (
        getattr(cached, name) for name in ("cache_clear", "cache_info", "cache_parameters")
    )
    return call


def _lru_cache(maxsize: Any = 128, typed: bool = False) -> Callable:
    if callable(maxsize):
        return _noting_cache(maxsize, _LRU_CACHE(maxsize))
    return lambda function: _noting_cache(function, _LRU_CACHE(maxsize, typed)(function))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before anything is imported anew."""
    _ran.clear()
    notes = noted() is not None
    functools.cache = (lambda function: _noting_cache(function, _CACHE(function))) if notes else _CACHE
    functools.lru_cache = _lru_cache if notes else _LRU_CACHE


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Note what a module of tests runs while it is imported."""
    seen = noted()
    if seen is None or not isinstance(collector, pytest.Module):
        return (yield)
    with _noting(seen, _ran.setdefault(collector.path, set())):
        report = yield
    seen.clear()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Note what a fixture runs that more tests than one have."""
    seen = noted()
    if seen is None or fixturedef.scope == "function":
        return (yield)
    with _noting(seen, _ran.setdefault(_name(fixturedef), set())):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    """Before mutmut gives the test all that was noted: what was kept of earlier ones."""
    seen = noted()
    if seen is None:
        return
    fixtures = item._fixtureinfo.name2fixturedefs
    for kept in (item.path, *(_name(one) for name in item.fixturenames for one in fixtures.get(name, ()))):
        seen |= _ran.get(kept, set())


def _name(fixturedef) -> Hashable:
    return fixturedef.baseid, fixturedef.argname
