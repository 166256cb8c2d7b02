"""python -m tests.mutate: what counts as a survivor, and what a list of equivalent mutants may hold."""

import configparser
import json
import os
import pkgutil
import subprocess
import sys
import tomllib

import pytest

from headcount.bench.errors import EnvironmentMissing, UsageError
from tests import mutate, mutation_stage

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


def diff_of(name):
    return f"--- a\n+++ b\n-line\n+line of {name}\n"


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
    assert mutate.judge(statuses, diff_of, reasons) == []
    reasons["headcount.formulas.a.f"] = {"line of headcount.formulas.a.x_f__mutmut_1": "…"}
    first, second = (f"headcount.formulas.a.x_f__mutmut_{number}" for number in (1, 2))
    assert mutate.judge(statuses, diff_of, reasons) == [
        f"{second}: survived: line of {second}",
        f"headcount.formulas.a.f: listed as equivalent, and does not survive: line of {first}",
    ]
    assert len(mutate.judge(statuses, diff_of, {})) == 3


@pytest.mark.parametrize("after", ["a, b, ", "a, b, strict=None", "a, b, strict=True", "a, ", "b, strict=False"])
def test_a_zip_that_need_not_be_strict_may_say_so_or_not(after):
    diff = f"--- a\n+++ b\n-    zip(a, b, strict=False)\n+    zip({after})\n"
    assert mutate.alike(diff) == (after in ("a, b, ", "a, b, strict=None"))
    failures = mutate.judge({"headcount.bench.a.x_f__mutmut_1": "survived"}, lambda name: diff, {})
    assert bool(failures) != mutate.alike(diff)


def answering(monkeypatch, tmp_path, results, listed=""):
    """Lets mutmut give ``results`` on one file of formulas/, and keeps what is written below ``tmp_path``."""
    asked = []
    answers = {"run": "", "results": results, "show": DIFF}
    monkeypatch.setattr(mutate, "_mutmut", lambda folder, command, *argv: asked.append(argv) or answers[command])
    monkeypatch.setattr(mutate, "files_of", lambda room: [mutate.ROOT / room / "mha.py"])
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path / "build")
    monkeypatch.setattr(mutate, "RECORD", tmp_path / "mutants.json")
    monkeypatch.setattr(mutate, "LISTED", tmp_path / "listed.toml")
    (tmp_path / "listed.toml").write_text(listed)
    return asked


MHA = "headcount.formulas.mha"
SURVIVES = f"{MHA}.x_g__mutmut_1: killed\n{MHA}.x_f__mutmut_2: survived\n"
REASON = f'["{MHA}.f"]\n"return g( a, 2)" = "why"\n'


@pytest.mark.parametrize("listed, code", [("", 1), (REASON, 0)])
def test_the_exit_code_tells_survivors(listed, code, tmp_path, monkeypatch, capsys):
    answering(monkeypatch, tmp_path, SURVIVES, listed)
    assert mutate.main([]) == code
    out, err = capsys.readouterr()
    assert out.startswith(f"2 mutants, 1 alive, {code} unexplained, ")
    assert (f"{MHA}.x_f__mutmut_2: survived: return g( a, 2)" in err) == bool(code)
    stored = json.loads((tmp_path / "mutants.json").read_text())["formulas"]
    assert (stored["mutants"], stored["unexplained"]) == (2, code)
    assert stored["statuses"] == {"killed": 1, "survived": 1}


def test_mutants_that_are_named_are_judged_alone_and_not_stored(tmp_path, monkeypatch, capsys):
    """What was not asked for was not checked: neither its mutants nor its reasons say anything."""
    results = f"{MHA}.x_f__mutmut_1: survived\nheadcount.formulas.b.x_f__mutmut_1: not checked\n"
    listed = '["headcount.formulas.b.f"]\n"return 2" = "why"\n'
    asked = answering(monkeypatch, tmp_path, results, listed)
    assert mutate.main([f"{MHA}*"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 mutants, 1 alive, 1 unexplained, ") and "listed" not in err
    assert asked[:2] == [(mutate.NONE,), (f"{MHA}*",)]
    assert not (tmp_path / "mutants.json").exists()


def test_a_room_is_stored_when_its_last_part_is_through(tmp_path, monkeypatch, capsys):
    answering(monkeypatch, tmp_path, SURVIVES, REASON)
    monkeypatch.setattr(mutate, "files_of", lambda room: [mutate.ROOT / room / name for name in ("mha.py", "moa.py")])
    parts = [paths[0].name for paths in mutate.divided(mutate.files_of("formulas"), 2)]
    with_reason = 1 + parts.index("mha.py")
    assert mutate.main(["--part", f"{with_reason}/2"]) == 0
    assert not (tmp_path / "mutants.json").exists()
    # the reason is of the other part, and the same survivor has none here
    assert mutate.main(["--part", f"{3 - with_reason}/2"]) == 1
    stored = json.loads((tmp_path / "mutants.json").read_text())["formulas"]
    assert (stored["mutants"], stored["alive"], stored["unexplained"]) == (4, 2, 1)
    assert stored["statuses"] == {"killed": 2, "survived": 2}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A room of ten mutants, made when mutmut first runs; f's fifth is the only one that survives, wherever drawn."""
    names = [f"{MHA}.x_f__mutmut_{number}" for number in range(1, 11)]
    said = []

    def mutmut(folder, command, *argv):
        meta = folder / "mutants" / "headcount" / "mha.py.meta"
        if command == "show":
            return DIFF
        codes = json.loads(meta.read_text())["exit_code_by_key"] if meta.exists() else dict.fromkeys(names)
        if command == "results":
            return "".join(
                f"{name}: { {0: 'survived', 1: 'killed', 34: 'skipped'}[code] }\n" for name, code in codes.items()
            )
        said.append(argv)
        if not argv:
            codes = {n: int(n != names[4]) if code is None else code for n, code in codes.items()}
        meta.parent.mkdir(parents=True, exist_ok=True)
        meta.write_text(json.dumps({"exit_code_by_key": codes}))
        if argv:
            statistics = {"tests_by_mangled_function_name": {}, "duration_by_test": {}}
            (folder / "mutants" / "mutmut-stats.json").write_text(json.dumps(statistics))
            raise EnvironmentMissing("nothing matches")
        return ""

    answering(monkeypatch, tmp_path, "")
    monkeypatch.setattr(mutate, "_mutmut", mutmut)
    return said


def test_a_sample_is_drawn_by_its_seed_once_and_the_rest_is_not_judged(drawn, tmp_path, capsys):
    found = set()
    for seed in range(1, 9):
        assert mutate.main(["--sample", "4", "--seed", str(seed)]) in (0, 1)
        stored = json.loads((tmp_path / "mutants.json").read_text())["formulas"]
        assert (stored["mutants"], stored["of"], stored["seed"]) == (4, 10, seed)
        assert sum(stored["statuses"].values()) == 4
        found.add(stored["unexplained"])
    assert found == {0, 1}
    first = capsys.readouterr().out.splitlines()[0]
    before = len(drawn)
    mutate.main(["--sample", "4", "--seed", "1"])
    # the names are asked for once; what was drawn stays drawn
    assert drawn[before:] == [()]
    assert capsys.readouterr().out.splitlines()[0].split(", ")[:3] == first.split(", ")[:3]


def test_no_mutant_is_tried_before_it_is_known_which_test_runs_which_function(drawn, monkeypatch, capsys):
    def mutmut(folder, *argv):
        raise EnvironmentMissing("mutmut run exited 1: a test fails without a mutant")

    monkeypatch.setattr(mutate, "_mutmut", mutmut)
    assert mutate.main(["--sample", "4"]) == EnvironmentMissing.exit_code
    assert "a test fails without a mutant" in capsys.readouterr().err


def test_a_listed_reason_that_was_not_drawn_says_nothing(drawn, tmp_path, capsys):
    (tmp_path / "listed.toml").write_text(f'["{MHA}.f"]\n"another line" = "why"\n')
    mutate.main(["--sample", "4"])
    assert "listed as equivalent" not in capsys.readouterr().err
    mutate.main(["--sample", "10"])
    assert "listed as equivalent" in capsys.readouterr().err


def test_every_file_is_in_one_part_and_parts_are_about_as_large():
    for room in mutation_stage.ROOMS:
        files = mutation_stage.files_of(room)
        for number in (1, 2, 5):
            parts = mutate.divided(files, number)
            assert sorted(path for part in parts for path in part) == files
            sizes = [sum(path.stat().st_size for path in part) for part in parts]
            assert max(sizes) - min(sizes) <= max(path.stat().st_size for path in files)


def test_what_no_test_noticed_is_tried_again_on_the_files_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    monkeypatch.setattr(mutation_stage, "ROOT", tmp_path)
    stage = mutation_stage.Stage("formulas", "one", [])
    with pytest.raises(UsageError, match="^--again is for what was run: there is no one$"):
        stage.renew(mutate.noticed)
    monkeypatch.setattr(mutation_stage, "ROOT", mutate.ROOT)
    stage = mutation_stage.Stage("formulas", "one", [mutate.ROOT / "formulas" / "mha.py"])
    stage.lay_out()
    stage.worked(7.5)
    mutants = stage.folder / "mutants" / "headcount"
    mutants.mkdir(parents=True)
    (stage.folder / "headcount" / "formulas" / "mha.py").write_text("old")
    codes = {"killed": 1, "survived": 0, "no tests": 33, "crashed in pytest": 3, "timeout": 36, "not yet": None}
    (mutants / "mha.py.meta").write_text(json.dumps({"exit_code_by_key": codes, "other": 1}))
    (stage.folder / "seen-by-children.txt").write_text("of tests that may have changed")
    assert stage.renew(mutate.noticed) == 7.5
    assert not (stage.folder / "seen-by-children.txt").exists()
    kept = json.loads((mutants / "mha.py.meta").read_text())
    assert kept == {"exit_code_by_key": dict.fromkeys(codes) | {"killed": 1, "crashed in pytest": 3}, "other": 1}
    assert (stage.folder / "headcount" / "formulas" / "mha.py").read_text() != "old"
    assert stage.lay_out() == 7.5


def test_changed_files_are_those_that_git_names(monkeypatch, capsys):
    commits = subprocess.run(["git", "rev-list", "HEAD"], cwd=mutate.ROOT, capture_output=True, text=True)
    if commits.returncode:
        pytest.skip("the files are no checkout of git")
    assert mutate.changed("formulas", commits.stdout.split()[-1]) == mutation_stage.files_of("formulas")
    monkeypatch.setattr(mutate, "changed", lambda room, base: [])
    assert mutate.main(["--changed", "HEAD"]) == 0
    assert capsys.readouterr().out == "0 mutants: no file has changed\n"


@pytest.mark.parametrize(
    "argv, said",
    [
        (["--part", "3/2"], "a part is I/N with 1 <= I <= N, not '3/2'"),
        (["--part", "half"], "a part is I/N with 1 <= I <= N, not 'half'"),
        (["--room", "tests"], "choose from"),
        (["--sample", "0"], "a whole number from 1 on expected, not '0'"),
        (["--changed", "no such commit"], "--changed takes a commit, not 'no such commit'"),
    ],
)
def test_wrong_arguments_are_one_line(argv, said, capsys):
    assert mutate.main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_it_runs_where_a_room_is_called_as_in_a_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    stage = mutation_stage.Stage("formulas", "stage", [mutate.ROOT / "formulas" / "moa.py"])
    (stage.folder / "left").mkdir(parents=True)
    stage.lay_out()
    assert not (stage.folder / "left").exists()
    command = [sys.executable, "-P", "-c", "from headcount.formulas import moa; print(moa.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(stage.folder)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(stage.folder / "headcount" / "formulas" / "moa.py")
    settings = configparser.ConfigParser()
    settings.read(stage.folder / "setup.cfg")
    chosen = dict(settings["mutmut"])
    for name in ("source_paths", "also_copy", "only_mutate", "pytest_add_cli_args_test_selection"):
        assert all((stage.folder / path).exists() for path in chosen[name].split())
    assert chosen["only_mutate"].split() == ["headcount/formulas/moa.py"]


def test_every_listed_function_is_there():
    listed = tomllib.loads(mutate.LISTED.read_text())
    assert all(callable(pkgutil.resolve_name(function)) for function in listed)


def test_without_mutmut_or_with_a_broken_run_it_says_so(tmp_path, monkeypatch, capsys):
    def missing(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(mutation_stage, "BUILD", tmp_path)
    monkeypatch.setattr(subprocess, "run", missing)
    assert mutate.main([]) == 3
    broken = subprocess.CompletedProcess([], 1, "", "no tests\nfailed\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: broken)
    assert mutate.main([]) == 3
    assert "mutmut run exited 1: failed" in capsys.readouterr().err
