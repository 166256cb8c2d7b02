"""python -m bench.mutate: what counts as a survivor, and what a list of equivalent mutants may hold."""

import subprocess

import pytest

from bench import mutate

RESULTS = """
    formulas.a.x_f__mutmut_1: killed
    formulas.a.x_f__mutmut_2: survived
    formulas.a.x_g__mutmut_1: no tests
"""


def test_results_are_read_line_by_line():
    assert mutate.read_results(RESULTS) == {
        "formulas.a.x_f__mutmut_1": "killed",
        "formulas.a.x_f__mutmut_2": "survived",
        "formulas.a.x_g__mutmut_1": "no tests",
    }


def test_a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_failures():
    statuses = mutate.read_results(RESULTS)
    assert mutate.judge(statuses, {"formulas.a.x_f__mutmut_2": "…", "formulas.a.x_g__mutmut_1": "…"}) == []
    assert mutate.judge(statuses, {"formulas.a.x_f__mutmut_1": "…", "formulas.a.x_g__mutmut_1": "…"}) == [
        "formulas.a.x_f__mutmut_2: survived; mutmut show formulas.a.x_f__mutmut_2",
        "formulas.a.x_f__mutmut_1 is listed as equivalent, and does not survive",
    ]


@pytest.mark.parametrize("listed, code", [("", 1), ('"formulas.a.x_f__mutmut_2" = "why"\n', 0)])
def test_the_exit_code_tells_survivors(listed, code, tmp_path, monkeypatch, capsys):
    (tmp_path / "listed.toml").write_text(listed)
    monkeypatch.setattr(mutate, "LISTED", tmp_path / "listed.toml")
    monkeypatch.setattr(mutate, "_mutmut", lambda *argv: "a: killed\nformulas.a.x_f__mutmut_2: survived\n")
    assert mutate.main() == code
    out, err = capsys.readouterr()
    assert out.startswith(f"2 mutants, 1 alive, {code} unexplained, ")
    assert ("formulas.a.x_f__mutmut_2: survived" in err) == bool(code)


def test_without_mutmut_or_with_a_broken_run_it_says_so(monkeypatch, capsys):
    def missing(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert mutate.main() == 3
    broken = subprocess.CompletedProcess([], 1, "", "no tests\nfailed\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: broken)
    assert mutate.main() == 3
    assert "mutmut run exited 1: failed" in capsys.readouterr().err
