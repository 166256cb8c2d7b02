"""User texts that would be code or markup in an output format: nothing runs, and printed texts are escaped."""

import csv
import io
import json
import pickle
import re
import zipfile

import pytest
import torch

import headcount as hc
from headcount.bench.column import Column, escape_controls
from headcount.bench.render import emit
from tests.bench.made_table import MadeRow, made_table
from tests.golden.conftest import run


class ShellCommand:
    """An object that runs a command when it is unpickled."""

    def __reduce__(self):
        import os

        return os.system, ("touch pwned",)


@pytest.mark.parametrize("zipped", [False, True])
def test_checkpoint_runs_nothing(zipped, folder):
    data = pickle.dumps({"w": ShellCommand()})
    (folder / "model.pt").write_bytes(data)
    if zipped:
        with zipfile.ZipFile(folder / "model.pt", "w") as file:
            file.writestr("archive/data.pkl", data)
            file.writestr("archive/version", "3")
    ended = run("routing --checkpoint model.pt --preset moa-8K8E128D --tokens tokens.txt")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1) and "model.pt" in ended.err
    assert not (folder / "pwned").exists()


NAMES = ["=cmd|'/c calc'!A1", "+1+1", "-2+3", "@SUM(A1)", "\tTAB(A1)", "<script>alert(1)</script>", "</pre><h1>"]
NAMES += ["<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "![x](http://x/y.png)", "@everyone #1", "a|b\nc"]
NAMES += ["`code`", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\rb", "\u202eevil", "$\\input{/etc/passwd}$"]
NAMES += ["*", "[3pt]", "\\immediate\\write18{touch pwned}", "%\\end{table}", "a_b^c&d#e~f"]


def render(form, name):
    """Return a table that has the name in a cell, its title and its notes."""
    stream = io.StringIO()
    columns = [Column("name", "name", code=True), Column("plain", "plain"), Column("n", "n", kind="int")]
    row = MadeRow({"name": name, "plain": name, "n": 3}, notes=[f"note {name}"])
    words = {"title": f"{name}: title", "above": [f"above {name}"], "below": [f"below {name}"], "note_column": "plain"}
    emit([made_table(columns, [row], **words)], form, stream)
    return stream.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_names_are_escaped(name):
    for form in ("text", "md", "latex"):
        text = render(form, name)
        assert text == escape_controls(text) and "\x1b" not in text
    outside_code = re.sub(r"<code>[^<]*</code>|`[^`\n]*`", "", render("md", name))
    assert not re.search(r"<[A-Za-z/!]|\]\(", outside_code)
    assert json.loads(render("json", name))["tables"][0]["rows"] == [{"name": name, "plain": name, "n": 3}]
    latex = render("latex", name)
    assert not re.search(r"\\(input|immediate|write18)", latex)
    # LaTeX reads a star after a line's end, and a length in brackets after both a line's end and a rule
    assert not re.search(r"(\\\\|rule)\s*[*\[]", latex)
    assert latex.count("\\begin{tab") == latex.count("\\end{tab") and latex.rstrip().endswith("\\end{table}")
    (row,) = csv.DictReader(io.StringIO(render("csv", name), newline=""))
    assert row["name"].lstrip("'") == escape_controls(name, kept="").lstrip("'") and row["name"][0] not in "=+-@\t\r"


def test_notebook_output_is_escaped():
    """Names of classes and of modules."""
    kind = type("<b>Net</b>", (torch.nn.Sequential,), {})
    module = kind()
    module.add_module("<i>first</i>", torch.nn.Linear(3, 5))
    page = hc.count(module, torch.ones(2, 3))._repr_html_()
    assert not re.search("<[bi]>", page) and page.count("&lt;b&gt;") == 2 and "&lt;i&gt;" in page
