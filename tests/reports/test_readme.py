"""The commands of the README."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from headcount.reports import counting, readme
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
FACTS = Facts()


def test_every_command_parses():
    found = re.findall(r"^\$ (.*?)(?: \|.*)?$", TEXT, re.MULTILINE)
    assert len(found) == 5
    for command in found:
        name, arguments = counting.parse_command(command)
        import_module(f"headcount.{name}").parser(" ".join(shlex.split(command)[:2])).parse_args(arguments)


def test_first_command_needs_no_package():
    words = shlex.split(readme.TEN_SECONDS)[1:]
    env = {"COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-S", *words], cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0
    shown = readme.ten_seconds(FACTS).splitlines()[2:-2]
    assert set(shown) - {readme.LEFT_OUT} <= set(done.stdout.splitlines())
