"""Texts of users that would be code or markup somewhere: nothing runs, and what is printed is escaped."""

import io
import json
import pickle
import re
import zipfile
from importlib import import_module

import pytest

from headcount.bench.render import emit
from headcount.bench.table import Column, Row, Section, Table, shown


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to be in; nothing may be left there but what is put there."""
    (tmp_path / "ids.txt").write_text("1 2 3\n")
    (tmp_path / "model.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Runs:
    """What pickle would run."""

    def __reduce__(self):
        import os

        return os.system, ("touch pwned",)


def pickled(path):
    path.write_bytes(pickle.dumps({"w": Runs()}))


def zipped(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"w": Runs()}))
        file.writestr("archive/version", "3")


@pytest.mark.parametrize("made", [pickled, zipped])
def test_a_checkpoint_runs_nothing(made, folder, capsys):
    made(folder / "model.pt")
    main = import_module("headcount.bench.routing.__main__").main
    code = main(["--checkpoint", "model.pt", "--preset", "moa-8K8E128D", "--tokens", "ids.txt"])
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert "no checkpoint: torch cannot read it" in err
    assert not (folder / "pwned").exists()


NAMES = (
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\tTAB(A1)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](http://x/y.png)",
    "@everyone #1",
    "a|b\nc",
    "`code`",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\rb",
    "\u202eevil",
    "$\\input{/etc/passwd}$",
    "\\immediate\\write18{touch pwned}",
    "%\\end{table}",
    "a_b^c&d#e~f",
    "</pre><h1>",
)


def printed(form, name):
    """A table with the name in a cell, its title and its notes."""
    stream = io.StringIO()
    columns = [Column("name", "name", code=True), Column("plain", "plain"), Column("n", "n", kind="int")]
    layout = Table("t", f"{name}: title", columns, [f"above {name}"], note_column="plain")
    row = Row({"name": name, "plain": name, "n": 3}, notes=[f"note {name}"], records=[{"name": name}])
    emit([Section(layout, [row], [f"below {name}"])], form, stream)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["text", "md", "latex", "csv"])
@pytest.mark.parametrize("name", NAMES)
def test_names_hold_no_control_codes(name, form):
    text = printed(form, name)
    if form != "csv":
        assert text == shown(text).replace("\\n", "\n")
    assert "\x1b" not in text or form == "csv"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_markup(name):
    text = printed("md", name)
    outside = re.sub(r"<code>[^<]*</code>|`[^`\n]*`", "", text)
    assert not re.search(r"<[A-Za-z/!]", outside)
    assert "](" not in outside
    assert json.loads(printed("json", name))["tables"][0]["rows"] == [{"name": name}]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_tex_command(name):
    text = printed("latex", name)
    for command in ("\\input", "\\immediate", "\\write18"):
        assert command not in text
    # everything that tex takes for more than a letter stands behind a backslash
    assert text.count("\\begin{tab") == text.count("\\end{tab") and text.rstrip().endswith("\\end{table}")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_spreadsheet_formula(name):
    import csv

    (row,) = csv.DictReader(io.StringIO(printed("csv", name), newline=""))
    assert row["name"].lstrip("'") == shown(name).lstrip("'")
    assert row["name"][0] not in "=+-@\t\r"
