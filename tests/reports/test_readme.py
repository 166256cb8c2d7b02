"""The commands of the README, and its generated blocks."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from headcount.__main__ import COMMANDS
from headcount.reports import counting, readme
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
COMMAND_LINES = re.findall(r"^headcount .*", BLOCKS["sh"].replace("\\\n", ""), re.MULTILINE)
FACTS = Facts()


def test_readme_is_short():
    assert len(TEXT.splitlines()) <= 120
    assert max(len(line) for text in BLOCKS.values() for line in text.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_every_command_parses(command):
    package, arguments = counting.parse_command(command)
    import_module(f"headcount.{package}.__main__").parser().parse_args(arguments)


def test_first_commands_are_those_of_the_readme():
    assert len(COMMAND_LINES) == 11
    assert {command.split()[1] for command in COMMAND_LINES} <= COMMANDS.keys()


def test_closed_forms_need_no_package():
    (command,) = re.findall(r"`python3 (.*?)`", TEXT)
    words = [sys.executable, "-S", *shlex.split(command)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={"COLUMNS": "80"})
    assert done.returncode == 0 and done.stdout.count("reproduced") > 3


def test_tools_table_shows_errors(monkeypatch):
    """The error is in percent of headcount's count; a call that fails shows why."""
    same = {"torch": "2.99.0", "transformers": "5.99.0"}
    stored = [
        {"tool": "headcount", "version": "0.2", "misses": "", "macs": {"A": 8_000_000_000, "B": 7_000}, "errors": {}, **same},
        {"tool": "torch", "version": "2.99.0", "misses": "x", "macs": {"A": 6_000_000_000, "B": 7_000}, "errors": {}, **same},
        {"tool": "thop", "version": "0.1", "misses": "y", "macs": {"A": 9_000_000_000}, "errors": {"B": "TypeError: no"}, **same},
    ]
    monkeypatch.setattr(FACTS, "stored_json", lambda name: stored)
    lines = readme.tools(FACTS).splitlines()
    assert lines[2:5] == [
        "| headcount | 8.00 G | 0.00 G |  |",
        "| torch | 6.00 G (-25.0 %) | 0.00 G | x |",
        "| thop | 9.00 G (+12.5 %) | TypeError: no | y |",
    ]
    assert lines[-1] == "torch 2.99.0, transformers 5.99.0, thop 0.1."


def test_configuration_is_counted_in_a_folder():
    """Any command that reads the file: Python's own list of files would do."""
    assert readme.CALL[0] is counting.count_config
