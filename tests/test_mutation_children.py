"""What processes that tests start run of a room is noted for the test that started them."""

import json
import os
import subprocess
import sys

import pytest

from tests import mutation_children

PACKAGE = """
def noticed(function, caller=None):
    print("mutmut notes", function)

record_trampoline_hit = noticed
"""
RUNS = """
import headcount
from mutmut.mutation import trampoline

for function in ("headcount.bench.case.x_of", "headcount.bench.case.x_of", "headcount.bench.lock.x_lock"):
    trampoline.record_trampoline_hit(function, caller=None)
"""
TEST = "tests/bench/test_case.py::test_four[a (b)é c]"


@pytest.fixture
def run(tmp_path):
    """Run a process as a test does while mutmut notes; what it prints, and what is noted of it."""
    mutation, seen = tmp_path / "mutmut" / "mutation", tmp_path / "seen.txt"
    mutation.mkdir(parents=True)
    (mutation / "trampoline.py").write_text(PACKAGE)
    (tmp_path / "headcount.py").write_text("__all__ = []\n" + mutation_children.notes(seen))

    def child(doing="stats", started_by="7"):
        environment = {**os.environ, "MUTANT_UNDER_TEST": doing, "PYTEST_CURRENT_TEST": f"{TEST} (call)"}
        known = {"MUTMUT_PROCESS": started_by} if started_by else {}
        argv = [sys.executable, "-c", RUNS]
        done = subprocess.run(argv, env=environment | known, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout, mutation_children.tests_of(seen)

    return child


def test_a_process_of_a_test_writes_down_each_function_once(run):
    known = {"headcount.bench.case.x_of": [TEST], "headcount.bench.lock.x_lock": [TEST]}
    assert run() == ("", known)
    again = {function: 2 * tests for function, tests in known.items()}
    assert run() == ("", again)


@pytest.mark.parametrize("options", [dict(doing="headcount.bench.case.x_of__mutmut_1"), dict(started_by=None)])
def test_mutmuts_own_process_and_those_that_try_a_mutant_are_left_alone(options, run):
    said, found = run(**options)
    assert said.count("mutmut notes") == 3 and found == {}


def test_functions_have_these_tests_besides_those_that_mutmut_has_noted(tmp_path):
    statistics = tmp_path / "stats.json"
    tests = {TEST: 1.5, "tests/bench/test_case.py::test_five": 0.5}
    known = {"f": ["tests/bench/test_case.py::test_five"]}
    statistics.write_text(json.dumps({"duration_by_test": tests, "tests_by_mangled_function_name": known, "other": 7}))
    mutation_children.add(statistics, {"f": [TEST, TEST], "g": [TEST, "a test that is no more"]})
    found = json.loads(statistics.read_text())
    assert found["tests_by_mangled_function_name"] == {"f": [*known["f"], TEST], "g": [TEST]}
    assert found["duration_by_test"] == tests and found["other"] == 7


def test_where_no_process_was_seen_nothing_is_added(tmp_path):
    assert mutation_children.tests_of(tmp_path / "nowhere.txt") == {}
