"""Where mutants are made: what of a room is changed there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import anew, mutation_stage


@pytest.mark.parametrize("there", [True, False])
def test_kernels_are_changed_where_they_can_be_run(there, monkeypatch):
    monkeypatch.setattr(mutation_stage, "find_spec", lambda name: object() if there else None)
    names = {path.name for path in mutation_stage.files_of("models")}
    assert ("triton_launch.py" in names) == there and "loop.py" in names


STATISTICS = {
    "tests_by_mangled_function_name": {"headcount.bench.lock.api.x_lock": ["tests/bench/lock/test_api.py::test_one"]},
    "duration_by_test": {
        "tests/bench/lock/test_api.py::test_one": 1,
        "tests/bench/lock/test_api.py::test_two[a::b]": 1,
        "tests/bench/lock/test_lock_command.py::test_three": 1,
        "tests/bench/test_case.py::test_four": 1,
        "tests/bench/macs/test_case.py::test_five": 1,
    },
}


@pytest.mark.parametrize(
    "function, tests",
    [
        ("headcount.bench.lock.api.x_lock", ["lock/test_api.py::test_one"]),
        ("headcount.bench.lock.api.x__other", ["lock/test_api.py::test_one", "lock/test_api.py::test_two[a::b]"]),
        (
            "headcount.bench.lock.__main__.x_main",
            [
                "lock/test_api.py::test_one",
                "lock/test_api.py::test_two[a::b]",
                "lock/test_lock_command.py::test_three",
            ],
        ),
        ("headcount.bench.case.xǁCaseǁof", ["test_case.py::test_four"]),
        ("headcount.bench.errors.x_file", []),
    ],
)
def test_a_function_that_only_other_processes_run_has_the_tests_of_its_module(function, tests, tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    stage = mutation_stage.Stage("bench", "stage", [])
    stage.statistics.parent.mkdir(parents=True)
    stage.statistics.write_text(json.dumps(STATISTICS))
    (stage.statistics.parent / "a.py.meta").write_text(
        json.dumps({"exit_code_by_key": {f"{function}__mutmut_1": None}})
    )
    stage.lend()
    found = json.loads(stage.statistics.read_text())["tests_by_mangled_function_name"]
    assert found.get(function) == [f"tests/bench/{test}" for test in tests]


def test_each_run_of_pytest_in_a_process_imports_anew(tmp_path):
    """A table that a module makes at import is made of the function as it is in that run."""
    for folder, name, text in (
        ("headcount", "__init__.py", ""),
        ("headcount", "tables.py", "import os\nTABLE = {'a': os.environ['MADE_OF']}\n"),
        ("tests", "anew.py", Path(anew.__file__).read_text()),
        ("tests", "test_it.py", "from headcount.tables import TABLE\ndef test(): assert TABLE['a'] == 'one'\n"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    twice = """
import os, pytest
for made_of in ("one", "two"):
    os.environ["MADE_OF"] = made_of
    print("exit", int(pytest.main(["-q", "--import-mode=importlib", "-p", "tests.anew", "tests"])))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", twice]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("exit")] == ["exit 0", "exit 1"]
