"""Text tables fit the terminal that they are printed to, and their columns are aligned."""

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from headcount.__main__ import main
from headcount.bench.column import Column
from headcount.bench.output.layout import Style, display_width, in_flops, scaled, unit_for
from headcount.bench.output.text import Text
from tests.bench.made_table import made_table
from tests.bench.output.command_tables import COMMANDS, STREAMED, misaligned_lines, tables_of


@pytest.mark.parametrize("width", [80, 120, None])
@pytest.mark.parametrize("command", COMMANDS)
def test_tables_are_aligned_and_fit(command, width):
    stream = io.StringIO()
    out = Text(stream, Style(width=width))
    for table in tables_of(command)[0]:
        out.print(table)
        if command in STREAMED:
            out.print(replace(table, rows=iter(table.rows)))
    text = stream.getvalue()
    assert misaligned_lines(text) == []
    assert width is None or max(map(len, text.splitlines())) <= width


COLUMNS = [
    Column("name", "name", priority=3),
    Column("macs", "MACs", kind="int", of="MACs"),
    Column("params", "params", kind="int", of="params", priority=2),
    Column("why", "why", wraps=6, priority=0),
]
ROW = {"name": "layer", "macs": 1_234_567_890_123, "params": 7, "why": "one two three"}


def table_at(width, columns=COLUMNS, rows=(ROW,), **style):
    stream = io.StringIO()
    Text(stream, Style(width=width, **style)).print(made_table(columns, rows))
    return stream.getvalue().splitlines()[2:]


def test_text_wraps_numbers_do_not():
    columns = [Column("n", "n", kind="int", priority=0), Column("t", "t", wraps=11, priority=0)]
    rows = [{"n": 12_345, "t": "moa-8K8E128D two one"}]
    assert table_at(22, columns, rows)[2:5] == ["12,345  moa-8K8E128D", "        two one", "------  --------------"]
    assert table_at(20, columns, rows)[2:4] == ["12,345  moa-8K8E128D", "        two one"]


def test_nonzero_is_never_printed_as_0():
    column = scaled(Column("n", "n", kind="int", of="MACs", sign=True), "M")
    assert [column.text(n) for n in (4_999, -4_999, 0, None, 5_001)] == ["<0.01", ">-0.01", "0", "–", "+0.01"]
    assert scaled(Column("b", "b", "bytes, 2 each", kind="int", of="bytes"), "G").unit == "GB, 2 each"
    assert scaled(Column("n", "n", kind="int"), "M") == Column("n", "n", kind="int")
    assert [unit_for(n) for n in (0, 10**7 - 1, 10**7, 10**11 - 1, 10**11)] == [None, None, "M", "M", "G"]


def test_flops_are_twice_macs():
    column = in_flops(Column("torch", "torch", kind="int", of="MACs"))
    assert column.unit == "FLOPs" and in_flops(column) is column
    assert scaled(column, "M").text(3_000_000) == "6.00"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_terminal_has_a_width_and_colours(monkeypatch):
    def printed():
        with redirect_stdout(Terminal()) as stream:
            assert main(["table", "--counter", "closed-form"]) == 0
        return stream.getvalue()

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed()
    plain = re.sub(r"\033\[\d+m", "", text)
    assert max(map(len, plain.splitlines())) <= 80 and "\033[32mreproduced\033[0m" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed() == plain
    monkeypatch.delenv("COLUMNS")
    assert Style.of(Terminal()).width and not Style.of(io.StringIO()).colour


@pytest.mark.parametrize(
    "columns, width",
    [("80", 80), ("-7", None), ("0", None), ("8" * 5000, None), ("eighty", None)],
    ids=lambda value: str(value)[:9],
)
def test_columns_variable_is_the_width_of_a_pipe(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert Style.of(io.StringIO()).width == width


WIDE = "注意力头" * 4
"""Sixteen characters of two columns each."""


def test_wide_characters_keep_columns_aligned():
    columns = [Column("path", "module", code=True), Column("n", "n", kind="int")]
    rows = [{"path": WIDE, "n": 7}, {"path": "é" * 3, "n": 1234}]
    assert table_at(None, columns, rows)[1:4] == [
        "-" * 32 + "  -----",
        WIDE + "      7",
        "é" * 3 + " " * 29 + "  1,234",
    ]


@pytest.mark.parametrize("width", range(17, 40))
def test_wide_characters_wrap_within_the_terminal(width):
    columns = [Column("path", "module", code=True), Column("n", "n", kind="int", priority=0)]
    lines = table_at(width, columns, [{"path": f"{WIDE} {WIDE[:3]} x", "n": 7}])
    assert max(map(display_width, lines)) <= width
    assert "".join(re.findall("[注意力头x]", "".join(lines))) == f"{WIDE}{WIDE[:3]}x"
