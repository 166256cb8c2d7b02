"""The report command finds stale files, and leaves no process after an interrupt."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headcount.reports import __main__ as command
from headcount.reports import pages, readme
from headcount.reports.document import Page, Section
from headcount.reports.explorer import page as explorer
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]


def test_fill_replaces_blocks_only():
    text = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n<!-- generated: y -->\n<!-- end: y -->\n"
    blocks = {"x": lambda facts: "new\n", "y": lambda facts: "also"}
    filled = readme.fill(text, None, blocks)
    assert filled == text.replace("old", "new").replace("y -->\n<", "y -->\nalso\n<")
    assert readme.fill(filled, None, blocks) == filled


@pytest.fixture
def small_report(monkeypatch):
    """Replace the pages by one with a plot, and the explorer by a text."""
    section = Section("One", [lambda facts: "$x^2$"], [])
    page = Page("a", "A page", "About.", [section], {"a.svg": lambda facts: "<svg/>"})
    monkeypatch.setattr(pages, "load", lambda facts: {"a": page})
    monkeypatch.setattr(Facts, "begin_stored", lambda facts: None)
    monkeypatch.setattr(explorer, "text", lambda facts: "an explorer")


@pytest.mark.parametrize("name", ["a.md", "a.svg", "explorer.html"])
def test_check_finds_stale_files(name, tmp_path, capsys, small_report):
    args = argparse.Namespace(only=None, html=False, check=False, out=tmp_path, recount=False)
    assert command._main(args, None) == 0
    args.check = True
    assert command._main(args, None) == 0
    capsys.readouterr()
    (tmp_path / name).write_text("changed")
    assert command._main(args, None) == 1
    assert capsys.readouterr().err == f"python -m reports: stale: {name}\n"
    (tmp_path / name).unlink()
    assert command._main(args, None) == 1 and not (tmp_path / name).exists()


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
