"""The commands of the README, and its generated blocks."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from headcount.reports import counting, readme
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\w+\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
GUIDES = [path.read_text("utf-8") for path in sorted((ROOT / "reports" / "site" / "guides").glob("*.md"))]
CODE = re.findall(r"^ *```sh\n(.*?)^ *```", "\n".join([TEXT, *GUIDES]), re.DOTALL | re.MULTILINE)
COMMAND_LINES = re.findall(r"^ *(headcount [^>\n]*)", "".join(CODE).replace("\\\n", ""), re.MULTILINE)
FACTS = Facts()


def test_readme_is_short():
    assert len(TEXT.splitlines()) <= 120
    assert max(len(line) for text in BLOCKS for line in text.splitlines()) <= 80


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


def test_tools_table_shows_errors(monkeypatch):
    """The error is in percent of headcount's count; a call that fails shows why."""
    base = {"torch": "2.99.0", "transformers": "5.99.0", "misses": "x", "errors": {}}
    stored = [
        base | {"tool": "headcount", "version": "0.2", "macs": {"A": 8_000_000_000, "B": 7_000}},
        base | {"tool": "torch", "version": "2.99.0", "macs": {"A": 6_000_000_000, "B": 7_000}},
        base | {"tool": "thop", "version": "0.1", "macs": {"A": 9_000_000_000}, "errors": {"B": "TypeError: no"}},
    ]
    monkeypatch.setattr(FACTS, "stored_json", lambda name: stored)
    lines = readme.tools(FACTS).splitlines()
    assert lines[2:5] == [
        "| headcount | 8.00 G | 0.00 G | x |",
        "| torch | 6.00 G (-25.0 %) | 0.00 G | x |",
        "| thop | 9.00 G (+12.5 %) | TypeError: no | x |",
    ]
    assert lines[-1] == "torch 2.99.0, transformers 5.99.0, thop 0.1."


def test_configuration_is_in_the_folder(monkeypatch):
    monkeypatch.setattr(counting, "run_command", lambda command, folder: Path(folder, "config.json").read_text())
    assert counting.count_config("count config.json", readme.CONFIG) == readme.CONFIG


def test_count_shows_first_lines_and_the_last(monkeypatch):
    lines = ["LlamaForCausalLM", "", *(str(line) for line in range(17)), "7,959,648,141,312 MACs"]
    monkeypatch.setattr(FACTS, "result", lambda call, *args: lines)
    shown = readme.count(FACTS).splitlines()
    first = ["```console", f"$ {readme.COUNT}", "LlamaForCausalLM", *map(str, range(readme.SHOWN - 1))]
    assert shown[0] == "```json"
    assert shown[-len(first) - 3 :] == [*first, "…", "7,959,648,141,312 MACs", "```"]
