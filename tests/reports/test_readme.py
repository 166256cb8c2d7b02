"""The README: small, narrow, true, and its commands run."""

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
FACTS = Facts()


def test_it_has_at_most_120_lines_and_10_kb():
    assert len(TEXT.splitlines()) <= 120 and len(TEXT.encode()) < 10_000


def test_what_commands_print_fits_80_columns():
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    printed = [line for block in blocks for line in block.splitlines() if line and line[0] not in "$#"]
    assert len(printed) > 20 and max(map(len, printed)) <= 80


def test_every_command_parses():
    found = re.findall(r"^\$ (.*?)(?: \|.*)?$", TEXT, re.MULTILINE)
    assert len(found) == 5
    for command in found:
        package, arguments = counting.parts(command)
        import_module(f"headcount.{package}.__main__").parser().parse_args(arguments)


def test_each_job_shows_at_most_six_lines():
    for _, command, shown in readme.JOBS:
        assert 2 <= len(shown()) <= 6, command


def test_the_first_command_needs_no_package():
    words = shlex.split(readme.TEN_SECONDS)[1:]
    env = {"COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-S", *words], cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0
    shown = readme.ten_seconds(FACTS).splitlines()[2:-2]
    assert set(shown) - {readme.LEFT_OUT} <= set(done.stdout.splitlines())


def test_the_verdicts_are_those_of_every_table():
    text = readme.verdicts(FACTS)
    assert all(f"{name} " in text for name in FACTS.tables)
    rows = sum(len(table.rows) for table in FACTS.tables.values())
    assert text.startswith(f"**{rows} rows of {len(FACTS.tables)} tables: ")
    kinds = r"(\d+) (?:reproduced|explained|no rule|unexplained|nothing printed)"
    for part in text.split("By table:"):
        assert sum(map(int, re.findall(kinds, part))) == rows


def test_the_two_commands_that_set_up_are_targets_that_say_what_they_download():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", TEXT, re.MULTILINE):
        assert f"\n{target}:" in makefile
    assert "1.3 GB" in TEXT and "1.3 GB" in makefile
    assert "install -q" not in makefile and "--quiet" not in makefile


def test_a_command_that_fails_is_no_part_of_a_document():
    with pytest.raises(counting.CommandFailed, match="^headcount macs --table x: .*x"):
        counting.printed("headcount macs --table x")


def test_a_table_is_found_among_notes_and_rules():
    lines = [
        "t",
        "note",
        "",
        "a  b",
        "-  -",
        "1  2",
        "-  -",
        "[1] n",
        "",
        "c",
        "--",
        "3",
        "--",
        "",
        "the end:",
        "  now",
    ]
    assert readme.table_of(lines) == ["a  b", "1  2"] and readme.table_of(lines, -1) == ["c", "3"]
    assert readme.ending(lines) == ["the end:", "  now"]
