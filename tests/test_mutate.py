"""python -m bench.mutate: what counts as a survivor, and what a list of equivalent mutants may hold."""

import json
import subprocess

import pytest

from tests import mutate

RESULTS = """
    formulas.a.x_f__mutmut_1: killed
    formulas.a.x_f__mutmut_2: survived
    formulas.a.x__g__mutmut_1: no tests
    formulas.a.xǁCǁm__mutmut_1: not checked
    formulas.a.x_endless__mutmut_1: timeout
"""
DIFF = """# formulas.a.x_f__mutmut_2: survived
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
        "formulas.a.x_f__mutmut_1": "killed",
        "formulas.a.x_f__mutmut_2": "survived",
        "formulas.a.x__g__mutmut_1": "no tests",
        "formulas.a.xǁCǁm__mutmut_1": "not checked",
        "formulas.a.x_endless__mutmut_1": "timeout",
    }


def test_a_mutant_is_known_by_its_function_and_its_line():
    names = [mutate.function_of(name) for name in mutate.read_results(RESULTS)]
    assert names == ["formulas.a.f", "formulas.a.f", "formulas.a._g", "formulas.a.C.m", "formulas.a.endless"]
    assert mutate.mutated_line(DIFF) == "return g( a, 2)"


def test_what_no_test_notices_needs_a_reason_and_a_reason_needs_a_survivor():
    statuses = mutate.read_results(RESULTS)
    reasons = {
        "formulas.a.f": {"line of formulas.a.x_f__mutmut_2": "…"},
        "formulas.a._g": {"line of formulas.a.x__g__mutmut_1": "…"},
        "formulas.a.C.m": {"line of formulas.a.xǁCǁm__mutmut_1": "…"},
    }
    assert mutate.judge(statuses, line_of, reasons) == []
    reasons["formulas.a.f"] = {"line of formulas.a.x_f__mutmut_1": "…"}
    assert mutate.judge(statuses, line_of, reasons) == [
        "formulas.a.x_f__mutmut_2: survived: line of formulas.a.x_f__mutmut_2",
        "formulas.a.f: listed as equivalent, and does not survive: line of formulas.a.x_f__mutmut_1",
    ]
    assert len(mutate.judge(statuses, line_of, {})) == 3


@pytest.mark.parametrize("listed, code", [("", 1), ('["formulas.a.f"]\n"return g( a, 2)" = "why"\n', 0)])
def test_the_exit_code_tells_survivors(listed, code, tmp_path, monkeypatch, capsys):
    (tmp_path / "listed.toml").write_text(listed)
    (tmp_path / "mutants").mkdir()
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "LISTED", tmp_path / "listed.toml")
    monkeypatch.setattr(mutate, "RECORD", tmp_path / "mutants.json")
    answers = {"run": "", "results": "a: killed\nformulas.a.x_f__mutmut_2: survived\n", "show": DIFF}
    monkeypatch.setattr(mutate, "_mutmut", lambda command, *argv: answers[command])
    assert mutate.main() == code
    out, err = capsys.readouterr()
    assert out.startswith(f"2 mutants, 1 alive, {code} unexplained, ")
    assert ("formulas.a.x_f__mutmut_2: survived: return g( a, 2)" in err) == bool(code)
    stored = json.loads((tmp_path / "mutants.json").read_text())
    assert (stored["mutants"], stored["unexplained"]) == (2, code)
    assert stored["statuses"] == {"killed": 1, "survived": 1}
    assert not (tmp_path / "mutants").exists()


def test_without_mutmut_or_with_a_broken_run_it_says_so(tmp_path, monkeypatch, capsys):
    def missing(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", missing)
    assert mutate.main() == 3
    broken = subprocess.CompletedProcess([], 1, "", "no tests\nfailed\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: broken)
    assert mutate.main() == 3
    assert "mutmut run exited 1: failed" in capsys.readouterr().err
