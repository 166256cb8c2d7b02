"""Where mutants are made: what of a room is changed there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import anew, mutate, mutation_imports, mutation_stage


@pytest.mark.parametrize("there", [True, False])
def test_kernels_are_changed_where_they_can_be_run(there, monkeypatch):
    monkeypatch.setattr(mutation_stage, "find_spec", lambda name: object() if there else None)
    names = {path.name for path in mutation_stage.files_of("models")}
    assert ("triton_launch.py" in names) == there and "loop.py" in names


def keep(stage, codes, folder="headcount"):
    """Write what mutmut keeps of the mutants of a module."""
    meta = stage.folder / "mutants" / folder / "a.py.meta"
    meta.parent.mkdir(parents=True, exist_ok=True)
    meta.write_text(json.dumps({"exit_code_by_key": codes}))


STAGED = {
    "conftest.py": "",
    "bench/lock/conftest.py": "",
    "bench/lock/test_api.py": "from tests.bench.lock import made_here, other",
    "bench/lock/made_here.py": "from tests.bench.sizes import SIZE",
    "bench/sizes.py": "",
    "bench/test_case.py": "",
}
API, CASE = "tests/bench/lock/test_api.py::test_one", "tests/bench/test_case.py::test_three"


@pytest.mark.parametrize(
    "changed, left",
    [
        ({}, {API, CASE}),
        ({"bench/lock/test_api.py": "def test_one(): ..."}, {CASE}),
        ({"bench/lock/test_new.py": ""}, {API, CASE}),
        ({"bench/lock/test_api.py": None}, {CASE}),
        ({"bench/sizes.py": "SIZE = 7"}, {CASE}),
        ({"bench/lock/conftest.py": "SIZE = 7"}, {CASE}),
        ({"conftest.py": "SIZE = 7"}, None),
    ],
    ids=["nothing", "a test", "a new one", "one less", "what it imports", "a folder's", "everybody's"],
)
def test_tests_that_changed_are_run_anew_and_others_are_known(changed, left, tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path / "build")
    monkeypatch.setattr(mutation_stage, "ROOT", tmp_path)
    stage = mutation_stage.Stage("bench", "stage", [])
    for root in (tmp_path, stage.folder):
        for name, text in {**STAGED, **(changed if root == tmp_path else {})}.items():
            path = root / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text or "")
            if text is None:
                path.unlink()
    stage.statistics.parent.mkdir(parents=True)
    stage.statistics.write_text(
        json.dumps({"tests_by_mangled_function_name": {"f": [API, CASE]}, "duration_by_test": {API: 1, CASE: 2}})
    )
    stage._forget_changed()
    if left is None:
        assert not stage.statistics.exists()
        return
    found = json.loads(stage.statistics.read_text())
    assert set(found["duration_by_test"]) == set(found["tests_by_mangled_function_name"]["f"]) == left


def test_what_was_drawn_stays_drawn_where_functions_change(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    stage = mutation_stage.Stage("bench", "stage", [])
    # mutmut copies what an older run has left there
    keep(stage, {"old": None}, "mutants/headcount")

    def drawn(codes):
        keep(stage, codes)
        mutate.draw(stage, 5, seed=1)
        found = stage.codes()
        return {name for name, code in found.items() if code != mutate.SKIPPED}, found

    first, found = drawn({f"f{i}": None for i in range(9)})
    assert len(first) == 5 and len(found) == 9
    gone, *kept = sorted(first)
    # f grows by three mutants and loses one that was drawn; what was tried stays tried
    codes = {f"f{i}": 1 if f"f{i}" in kept else mutate.SKIPPED for i in range(9) if f"f{i}" != gone}
    again, found = drawn(codes | {"g1": None, "g2": None, "g3": None})
    assert len(again) == 5 and set(kept) < again
    assert [found[name] for name in kept] == [1] * 4
    assert [found[name] for name in again.difference(kept)] == [None]


def test_a_part_that_was_broken_off_goes_on_where_it_was_and_begins_anew_on_other_files(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    stage = mutation_stage.Stage("formulas", "one", [mutate.ROOT / "formulas" / "mha.py"])
    assert stage.lay_out() == 0
    (stage.folder / "mutants" / "found").touch()
    stage.worked(7.5)
    stage.keep({"mutants": 3})
    assert stage.lay_out() == 7.5 and (stage.folder / "mutants" / "found").exists()
    assert stage.kept(stage.inputs) == {"mutants": 3} and stage.kept("other files") is None
    other = mutation_stage.Stage("formulas", "one", [mutate.ROOT / "formulas" / "moa.py"])
    assert other.lay_out() == 0 and list((other.folder / "mutants").iterdir()) == []


RUNS = """
import os, pytest
for made_of in ("one", "two", "nothing", "one"):
    os.environ["MADE_OF"] = made_of
    print("exit", int(pytest.main(["-q", "--import-mode=importlib", "-p", "tests.anew", "tests"])))
"""


@pytest.mark.parametrize("imported_by", ["conftest.py", "test_it.py"])
def test_each_run_of_pytest_in_a_process_imports_anew(imported_by, tmp_path):
    """A table that a module makes at import is made of the function as it is in that run; where that fails, a test
    has failed, whoever imports it."""
    texts = {
        "headcount/__init__.py": "",
        "headcount/tables.py": "import os\nTABLE = {'a': {'one': 1, 'two': 2}[os.environ['MADE_OF']]}\n",
        "tests/anew.py": Path(anew.__file__).read_text(),
        "tests/test_it.py": "def test():\n    from headcount.tables import TABLE\n    assert TABLE['a'] == 1\n",
    }
    (tmp_path / "headcount").mkdir()
    (tmp_path / "tests").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with (tmp_path / "tests" / imported_by).open("a") as file:
        file.write("from headcount import tables\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", RUNS]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.findall(r"^exit (\d)", done.stdout, re.MULTILINE) == ["0", "1", "1", "0"]


def test_what_processes_run_is_added_whenever_a_run_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    stage = mutation_stage.Stage("bench", "stage", [])
    stage.statistics.parent.mkdir(parents=True)
    stage.statistics.write_text(json.dumps({"tests_by_mangled_function_name": {}, "duration_by_test": {CASE: 1}}))
    (stage.folder / "seen-by-children.txt").write_text(f"{CASE} (call)\theadcount.bench.case.x_of\n")
    monkeypatch.setattr(mutate, "_mutmut", None)
    for _ in range(2):
        mutate.collect(stage, again=False)
        found = json.loads(stage.statistics.read_text())["tests_by_mangled_function_name"]
        assert found == {"headcount.bench.case.x_of": [CASE]}


MADE = """
def made(n):
    def rule():
        return helper(n)
    return rule

def helper(n): return n

def size(): return 7

def wrap(function): return function

def later(): return size()

@wrap
def wrapped(n=size()): return later()

TABLE = {"a": made(1), "b": lambda: later()}
"""


def test_what_runs_at_import_is_tried_by_the_tests_of_its_module(tmp_path):
    """made() ran for whoever imported the module first; its rule runs for the test that looks it up."""
    assert mutation_imports.run_at_import(MADE) == {"made", "helper", "size", "wrap"}
    (tmp_path / "tables.py").write_text(MADE)
    known = {"a.tables.x_made": ["first"], "a.tables.x_later": ["second", "third"], "a.other.x_made": ["fourth"]}
    stats = {"tests_by_mangled_function_name": known, "duration_by_test": {}}
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    for _ in range(2):
        mutation_imports.add(tmp_path / "stats.json", {"a.tables": tmp_path / "tables.py"})
        found = json.loads((tmp_path / "stats.json").read_text())["tests_by_mangled_function_name"]
        assert {name: set(tests) for name, tests in found.items()} == {
            "a.tables.x_later": {"second", "third"},
            "a.other.x_made": {"fourth"},
            **dict.fromkeys(
                (f"a.tables.x_{name}" for name in ("made", "helper", "size", "wrap")), {"first", "second", "third"}
            ),
        }
