"""The report command finds stale files and unknown pages."""

import subprocess
import sys
from pathlib import Path

import pytest

from headcount.reports import __main__ as command
from headcount.reports import template
from headcount.reports.explorer import page as explorer
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_report(monkeypatch, tmp_path):
    """Replace the pages by one with a plot, the explorer by a text, and the folder of the generated files."""
    source = tmp_path / "a.md"
    monkeypatch.setattr(template, "sources", lambda: {"a": source})
    makers = {tmp_path / "out" / "a.md": lambda facts: "$x^2$", tmp_path / "out" / "a.svg": lambda facts: "<svg/>"}
    monkeypatch.setattr(template, "outputs", lambda page: makers)
    monkeypatch.setattr(template, "ROOT", tmp_path)
    monkeypatch.setattr(template, "GENERATED", tmp_path / "out")
    monkeypatch.setattr("headcount.CHECKOUT", tmp_path)
    monkeypatch.setattr(Facts, "has_counts", True)
    monkeypatch.setattr(Facts, "begin_stored", lambda facts: None)
    monkeypatch.setattr(Facts, "counts", lambda facts: "{}")
    monkeypatch.setattr(explorer, "text", lambda facts: "an explorer")


@pytest.mark.parametrize("name", ["out/a.md", "out/a.svg", "out/explorer.html", "reports/records/counts.json"])
def test_check_finds_stale_files(name, tmp_path, capsys, small_report):
    assert command.main([]) == 0
    assert command.main(["--check"]) == 0
    capsys.readouterr()
    (tmp_path / name).write_text("changed")
    assert command.main(["--check"]) == 1
    assert capsys.readouterr().err == f"python -m reports: stale: {name}\n"
    (tmp_path / name).unlink()
    assert command.main(["--check"]) == 1 and not (tmp_path / name).exists()


def test_check_counts_nothing_again(monkeypatch, capsys):
    monkeypatch.setattr(Facts, "stored_json", lambda facts, name: {"sources": "others", "calls": {}})
    monkeypatch.setattr(template, "sources", lambda: pytest.fail("a page is made"))
    assert command.main(["--check"]) == 1
    assert capsys.readouterr().err == "python -m reports: stale: reports/records/counts.json\n"


def test_unknown_page_names_choices(capsys):
    assert command.main(["--only", "mao"]) == 2
    assert "unknown page 'mao'; choose from cards, choose, claims, " in capsys.readouterr().err


def test_generated_files_are_current():
    done = subprocess.run([sys.executable, "-m", "reports", "--check"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
