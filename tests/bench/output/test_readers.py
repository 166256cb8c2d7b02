"""What readers of LaTeX, markdown and help are not misled by: marks that go, links that are none."""

import io

import pytest

from headcount.bench.cli import Parser
from headcount.bench.output.base import Style
from headcount.bench.output.latex import Latex
from headcount.bench.render import emit
from headcount.bench.table import Column, Row, Section, Table


def printed(form, section):
    stream = io.StringIO()
    emit([section], form, stream)
    return stream.getvalue()


NOTED = [Column("row", "row"), Column("more", "more"), Column("verdict", "verdict", priority=9)]


def test_the_column_with_footnotes_is_not_left_out_of_a_page():
    values = {"row": "a" * 50, "more": "b" * 50, "verdict": "explained"}
    rows = [Row(values, notes=["the vocabulary is not counted"])]
    section = Section(Table("t", "T", NOTED, note_column="verdict"), rows)
    text = printed("latex", section)
    assert "explained [1]" in text and "[1] the vocabulary is not counted" in text
    assert "wide): more." in text
    stream = io.StringIO()
    Latex(stream, Style(wide=True)).print(section, rows)
    assert all(name in stream.getvalue() for name in values.values())


LINKS = {
    "a link": ("[weights](http://x.y)", r"[weights]\(http://x.y)"),
    "a reference": ("[weights][1]", r"[weights]\[1]"),
    "an element": ("<b>bold</b> 3 < 5", "&lt;b>bold&lt;/b> 3 < 5"),
    "two lines": ("one\ntwo", "one two"),
}


@pytest.mark.parametrize("case", LINKS)
def test_what_a_row_is_called_is_no_markup_of_the_page(case):
    given, shown = LINKS[case]
    rows = [Row({"name": f"{given} | end"})]
    text = printed("md", Section(Table("t", given, [Column("name", "name")]), rows, below=[given]))
    assert text.startswith(f"## {shown}\n\n") and text.endswith(f"\n\n{shown}\n")
    assert f"| {shown} \\| end |" in text


def test_a_text_of_digits_stays_as_it_is_written():
    rows = [Row({"name": "0070", "share": "12.50"}), Row({"name": "1e3", "share": "3.0"})]
    text = printed("md", Section(Table("t", "T", [Column("name", "name"), Column("share", "share")]), rows))
    assert [line.strip("| ").split() for line in text.splitlines()[-2:]] == [
        ["0070", "|", "12.50"],
        ["1e3", "|", "3.0"],
    ]


def test_an_example_too_long_for_the_terminal_says_what_it_does_below_itself(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = ["    python -m bench.macs --table moa-table3       counts every row of the paper's third table",
             "    python -m bench.macs --list       short"]  # fmt: skip
    text = Parser(prog="x", description="About.\n\n" + "\n".join(lines)).format_help()
    assert "\n".join([
        "    python -m bench.macs --table moa-table3",
        "        counts every row of the paper's third table",
        "    python -m bench.macs --list",
        "        short",
    ]) in text  # fmt: skip
    assert max(map(len, text.splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "110")
    assert "\n".join(lines) in Parser(prog="x", description="About.\n\n" + "\n".join(lines)).format_help()


def test_what_an_example_does_is_broken_into_lines_where_it_is_long_itself(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    what = "each row of the third table is counted again, and each verdict is printed"
    text = Parser(prog="x", description=f"About.\n\n    python -m bench.macs  {what}").format_help()
    assert "\n        each row of the third table is counted again," in text
    assert max(map(len, text.splitlines())) <= 60 and what in " ".join(text.split())
