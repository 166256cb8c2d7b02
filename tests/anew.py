"""A plugin of pytest: the rooms and their tests are imported anew in each of many runs in one process.

Mutants are tried in forks of a process that has run the tests. What a module makes while it is imported, as tables of
functions, is to be made of the mutant, and nothing that an earlier run computed is to be left. Where an import itself
fails, tests have failed.
"""

import sys

import pytest

KEPT = ("tests", __name__, "tests.mutation_shared")
"""Modules that know what was before."""

_failed: list[BaseException] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests():
    """Forget what is imported of them, and go on where it cannot be imported again."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("headcount", "tests") and name not in KEPT:
            del sys.modules[name]
    _failed.clear()
    try:
        return (yield)
    except Exception as error:
        _failed.append(error)


def pytest_collection():
    """A session without its conftest is no usage error."""
    if _failed:
        pytest.exit(repr(_failed[0]), returncode=pytest.ExitCode.TESTS_FAILED)


def pytest_sessionfinish(session, exitstatus):
    """Nor is a module of tests that cannot be imported an interruption."""
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.testsfailed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
