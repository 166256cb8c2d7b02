"""The commands of the README and of the guides."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from headcount.reports import counting

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
GUIDES = [path.read_text("utf-8") for path in sorted((ROOT / "reports" / "site" / "guides").glob("*.md"))]
CODE = re.findall(r"^ *```sh\n(.*?)^ *```", "\n".join([TEXT, *GUIDES]), re.DOTALL | re.MULTILINE)
COMMAND_LINES = re.findall(r"^ *(headcount [^>\n]*)", "".join(CODE).replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_every_command_parses(command):
    name, arguments = counting.parse_command(command)
    if name.startswith("bench.latency") and not arguments[0].startswith("-"):
        name = "bench.latency.targets"
    import_module(f"headcount.{name}").parser(" ".join(shlex.split(command)[:2])).parse_args(arguments)


def test_closed_forms_need_no_package():
    (command,) = re.findall(r"`python3 (.*?)`", TEXT)
    words = [sys.executable, "-S", *shlex.split(command)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={"COLUMNS": "80"})
    assert done.returncode == 0 and done.stdout.count("reproduced") > 3
