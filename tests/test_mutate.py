"""python -m tests.mutate: what counts as a survivor, and what a list of equivalent mutants may hold."""

import importlib.util
import json
import os
import subprocess
import sys
import tomllib

import pytest

from tests import mutate

RESULTS = """
    headcount.formulas.a.x_f__mutmut_1: killed
    headcount.formulas.a.x_f__mutmut_2: survived
    headcount.formulas.a.x__g__mutmut_1: no tests
    headcount.formulas.a.xǁCǁm__mutmut_1: not checked
    headcount.formulas.a.x_endless__mutmut_1: timeout
"""
DIFF = """# headcount.formulas.a.x_f__mutmut_2: survived
--- formulas/a.py
+++ formulas/a.py
@@ -1,3 +1,3 @@
 def f(a):
-    return g(
-        a, 1)
+    return g(
+        a, 2)
"""


def line_of(name):
    return f"line of {name}"


def test_results_are_read_line_by_line():
    assert mutate.read_results(RESULTS) == {
        "headcount.formulas.a.x_f__mutmut_1": "killed",
        "headcount.formulas.a.x_f__mutmut_2": "survived",
        "headcount.formulas.a.x__g__mutmut_1": "no tests",
        "headcount.formulas.a.xǁCǁm__mutmut_1": "not checked",
        "headcount.formulas.a.x_endless__mutmut_1": "timeout",
    }


def test_a_mutant_is_known_by_its_function_and_its_line():
    names = [mutate.function_of(name) for name in mutate.read_results(RESULTS)]
    assert names == [
        "headcount.formulas.a.f",
        "headcount.formulas.a.f",
        "headcount.formulas.a._g",
        "headcount.formulas.a.C.m",
        "headcount.formulas.a.endless",
    ]
    assert mutate.mutated_line(DIFF) == "return g( a, 2)"


def test_what_no_test_notices_needs_a_reason_and_a_reason_needs_a_survivor():
    statuses = mutate.read_results(RESULTS)
    reasons = {
        "headcount.formulas.a.f": {"line of headcount.formulas.a.x_f__mutmut_2": "…"},
        "headcount.formulas.a._g": {"line of headcount.formulas.a.x__g__mutmut_1": "…"},
        "headcount.formulas.a.C.m": {"line of headcount.formulas.a.xǁCǁm__mutmut_1": "…"},
    }
    assert mutate.judge(statuses, line_of, reasons) == []
    reasons["headcount.formulas.a.f"] = {"line of headcount.formulas.a.x_f__mutmut_1": "…"}
    first, second = (f"headcount.formulas.a.x_f__mutmut_{number}" for number in (1, 2))
    assert mutate.judge(statuses, line_of, reasons) == [
        f"{second}: survived: line of {second}",
        f"headcount.formulas.a.f: listed as equivalent, and does not survive: line of {first}",
    ]
    assert len(mutate.judge(statuses, line_of, {})) == 3


@pytest.mark.parametrize("listed, code", [("", 1), ('["headcount.formulas.a.f"]\n"return g( a, 2)" = "why"\n', 0)])
def test_the_exit_code_tells_survivors(listed, code, tmp_path, monkeypatch, capsys):
    (tmp_path / "listed.toml").write_text(listed)
    staged = []
    monkeypatch.setattr(mutate, "stage", staged.append)
    monkeypatch.setattr(mutate, "LISTED", tmp_path / "listed.toml")
    monkeypatch.setattr(mutate, "RECORD", tmp_path / "mutants.json")
    answers = {"run": "", "results": "a: killed\nheadcount.formulas.a.x_f__mutmut_2: survived\n", "show": DIFF}
    monkeypatch.setattr(mutate, "_mutmut", lambda command, *argv: answers[command])
    assert mutate.main([]) == code
    out, err = capsys.readouterr()
    assert out.startswith(f"2 mutants, 1 alive, {code} unexplained, ")
    assert ("headcount.formulas.a.x_f__mutmut_2: survived: return g( a, 2)" in err) == bool(code)
    stored = json.loads((tmp_path / "mutants.json").read_text())
    assert (stored["mutants"], stored["unexplained"]) == (2, code)
    assert stored["statuses"] == {"killed": 1, "survived": 1}
    assert staged == [mutate.STAGE]


def test_a_part_is_judged_alone_and_not_stored(tmp_path, monkeypatch, capsys):
    """What was not asked for was not checked: neither its mutants nor its reasons say anything."""
    (tmp_path / "listed.toml").write_text('["headcount.formulas.b.f"]\n"return 2" = "why"\n')
    monkeypatch.setattr(mutate, "stage", lambda folder: None)
    monkeypatch.setattr(mutate, "LISTED", tmp_path / "listed.toml")
    monkeypatch.setattr(mutate, "RECORD", tmp_path / "mutants.json")
    results = "headcount.formulas.a.x_f__mutmut_1: survived\nheadcount.formulas.b.x_f__mutmut_1: not checked\n"
    asked = []
    answers = {"run": "", "results": results, "show": DIFF}
    monkeypatch.setattr(mutate, "_mutmut", lambda command, *argv: asked.append((command, *argv)) or answers[command])
    assert mutate.main(["headcount.formulas.a*"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 mutants, 1 alive, 1 unexplained, ") and "listed" not in err
    assert asked[0] == ("run", "headcount.formulas.a*")
    assert not (tmp_path / "mutants.json").exists()


def test_it_runs_where_formulas_are_called_as_in_a_wheel(tmp_path):
    stage = tmp_path / "stage"
    (stage / "left").mkdir(parents=True)
    mutate.stage(stage)
    assert not (stage / "left").exists()
    command = [sys.executable, "-P", "-c", "from headcount.formulas import moa; print(moa.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(stage)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(stage / "headcount" / "formulas" / "moa.py")
    settings = tomllib.loads((stage / "pyproject.toml").read_text())["tool"]["mutmut"]
    chosen = settings["source_paths"] + settings["also_copy"] + settings["pytest_add_cli_args_test_selection"]
    assert all((stage / path).is_dir() for path in chosen)
    listed = tomllib.loads(mutate.LISTED.read_text())
    assert all(importlib.util.find_spec(function.rpartition(".")[0]) for function in listed)


def test_without_mutmut_or_with_a_broken_run_it_says_so(monkeypatch, capsys):
    def missing(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(mutate, "stage", lambda folder: None)
    monkeypatch.setattr(subprocess, "run", missing)
    assert mutate.main([]) == 3
    broken = subprocess.CompletedProcess([], 1, "", "no tests\nfailed\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: broken)
    assert mutate.main([]) == 3
    assert "mutmut run exited 1: failed" in capsys.readouterr().err
