"""The environments of python -m tests.matrix, without making one."""

import sys
from pathlib import Path

import pytest

from headcount.bench.counters.call_counts import TORCH
from tests import matrix


def test_cells_are_the_supported_versions():
    found = matrix.cells()
    torches = [name.removeprefix("torch-") for name in found if name.startswith("torch-")]
    assert torches == ["2.11", "2.12", "2.13", "2.14", "newest"]
    # the tests of the counters' rules are among the core
    assert set(TORCH.split(", ")) >= set(torches) - {"newest"} and "tests/bench/counters" in matrix.CORE
    running = "{}.{}".format(*sys.version_info)
    pythons = [cell.python for name, cell in found.items() if name.startswith("python-")]
    assert pythons == [minor for minor in ("3.11", "3.12", "3.13") if minor != running]
    assert not any(line.startswith("torch") for line in found["torch-newest"].constraints)
    assert all("tabulate<0.11" in cell.constraints for name, cell in found.items() if name != "oldest")


def test_oldest_cell_has_lower_bounds():
    wanted = matrix.oldest(["torch>=2.11", "fvcore>=0.1.5.post20221221,<0.2", "triton>=3.5; sys_platform == 'linux'"])
    assert wanted == ("torch==2.11", "fvcore==0.1.5.post20221221", "triton==3.5")
    names = {line.partition("==")[0] for line in matrix.cells()["oldest"].constraints}
    assert names >= {"torch", "ptflops", "fvcore", "pandas", "sympy", "tabulate", "matplotlib", "shtab"}


def test_missing_python_is_named_and_passes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(matrix, "STAGE", tmp_path / "matrix")
    monkeypatch.setattr(matrix.shutil, "which", lambda name: None)
    other = "3.12" if sys.version_info[:2] == (3, 13) else "3.13"
    assert matrix.main([f"python-{other}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"python-{other}    no python{other} on this machine"


@pytest.mark.parametrize(("codes", "reason"), [((1,), "no environment"), ((0, 1), "cannot be installed")])
def test_failed_installation_fails_cell(codes, reason, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(matrix, "STAGE", tmp_path / "matrix")
    left = list(codes)

    def run(command, **options):
        return matrix.subprocess.CompletedProcess(command, left.pop(0))

    monkeypatch.setattr(matrix.subprocess, "run", run)
    assert matrix.main(["torch-2.12"]) == 1
    assert reason in capsys.readouterr().out and left == []


def test_python_that_does_not_start_is_missing(monkeypatch, tmp_path):
    shim = tmp_path / "python3.14"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setattr(matrix.shutil, "which", lambda name: str(shim))
    assert matrix.Cell("python-3.14", "3.14").interpreter is None


@pytest.mark.parametrize("failed", [0, 2])
def test_cell_reports_its_test_results(failed, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(matrix, "STAGE", tmp_path / "matrix")
    monkeypatch.setattr(matrix, "versions", lambda python: {"python": "3.11.7", "torch": "2.12.1"})

    def run(command, **options):
        wanted = [word for word in map(str, command) if word.startswith("--junitxml=")]
        for word in wanted:
            Path(word.partition("=")[2]).write_text(
                f'<testsuites><testsuite tests="19" failures="{failed}" errors="0" skipped="5"/></testsuites>'
            )
        return matrix.subprocess.CompletedProcess(command, 1 if wanted and failed else 0)

    monkeypatch.setattr(matrix.subprocess, "run", run)
    assert matrix.main(["torch-2.12"]) == (1 if failed else 0)
    assert f"Python 3.11.7, torch 2.12.1: {14 - failed} passed, 5 skipped, {failed} failed" in capsys.readouterr().out


def test_unknown_cell_is_wrong_usage(capsys):
    assert matrix.main(["torch-1.0"]) == 2
    assert "unknown torch-1.0; choose from torch-2.11, " in capsys.readouterr().err
