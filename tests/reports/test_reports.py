"""The report command finds stale files, and leaves no process after an interrupt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
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


def test_unknown_page_names_choices(capsys):
    assert command.main(["--only", "mao"]) == 2
    assert "unknown page 'mao'; choose from choose, claims, " in capsys.readouterr().err


@pytest.mark.parametrize("group, after", [(True, 0.7), (False, 4)], ids=["as from a terminal", "to the one process"])
def test_interrupt_leaves_no_process(group, after):
    command = [sys.executable, "-m", "reports", "--check", "--recount"]
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    process = psutil.Process(started.pid)
    while len(process.children(recursive=True)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = process.children(recursive=True)
    assert workers
    time.sleep(after)
    (os.killpg if group else os.kill)(started.pid, signal.SIGINT)
    # much less than the remaining counts take
    _, err = started.communicate(timeout=8)
    # Python itself dies of SIGINT that arrives while it executes generated code, such as that of a dataclass
    assert started.returncode in (130, -signal.SIGINT)
    assert err.strip() == "python -m reports: interrupted"
    # multiprocessing's resource tracker ends last
    _, running = psutil.wait_procs(workers, timeout=2)
    assert not running


def test_generated_files_are_current():
    done = subprocess.run([sys.executable, "-m", "reports", "--check"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
