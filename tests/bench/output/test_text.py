"""Text tables fit the terminal that they are printed to, and their columns stand in line."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from headcount.bench.output.base import Style, in_flops, scaled, unit_for
from headcount.bench.output.layout import display_width, fit
from headcount.bench.output.text import Text
from headcount.bench.table import GOOD, Column, Row, Section, Table
from tests.bench.output.printed import COMMANDS, STREAMED, out_of_line, sections

ROOT = Path(__file__).parents[3]


def shown(command, streamed=False, **style):
    """What ``command`` prints, its rows known together or one by one."""
    stream, (printed, _) = io.StringIO(), sections(command)
    out = Text(stream, Style(**style))
    for section in printed:
        rows = list(section.rows)
        out.print(replace(section, rows=iter(rows) if streamed else rows), rows)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command, width):
    lines = shown(command, width=width).splitlines()
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("command", STREAMED)
def test_no_line_that_comes_by_itself_is_wider_than_the_terminal(command, width):
    lines = shown(command, streamed=True, width=width).splitlines()
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [80, None])
@pytest.mark.parametrize("command", COMMANDS)
def test_columns_stand_in_line(command, width):
    assert out_of_line(shown(command, width=width)) == []


@pytest.mark.parametrize("width", [80, None])
@pytest.mark.parametrize("command", STREAMED)
def test_columns_stand_in_line_where_rows_come_by_themselves(command, width):
    assert out_of_line(shown(command, streamed=True, width=width)) == []


def test_the_ledger_of_a_router_is_as_wide_as_its_longest_path():
    lines = shown("macs --preset moa-8K8E128D --seq-len 512").splitlines()
    (rule, *_) = (line for line in lines if line.startswith("---"))
    router = next(line for line in lines if line.startswith("decoder.layers.*.cross_attn.router.proj "))
    assert rule.index(" ") == len("decoder.layers.*.cross_attn.router.proj")
    assert router[rule.index(" ") :].startswith("  linear ")


def test_what_is_left_out_and_rounded_is_said():
    text = shown("macs --counter closed-form --params", width=80)
    said = " ".join(text.split())
    assert (
        "Hidden columns (use --wide): params printed En-De, params printed En-Fr, params exact, params active" in said
    )
    assert "Rounded; --unit raw prints integers." in said
    assert "reproduced" in text and "2,092.97" in text
    wide = shown("macs --counter closed-form --params", width=80, wide=True)
    assert "Hidden" not in wide and "Rounded" not in wide and "2,092,974,080" in wide


def test_notes_that_tables_share_are_printed_once():
    text = shown("macs --counter closed-form --params")
    assert text.count("Exact: every multiply-accumulate") == 1


COLUMNS = [
    Column("name", "name", priority=3),
    Column("macs", "MACs", kind="int", of="MACs"),
    Column("params", "params", kind="int", of="params", priority=2),
    Column("why", "why", wraps=6, priority=0),
]
ROW = {"name": "layer", "macs": 1_234_567_890_123, "params": 7, "why": "one two three"}


def table_at(width, columns=COLUMNS, rows=(ROW,), **style):
    stream = io.StringIO()
    rows = [Row(row) for row in rows]
    Text(stream, Style(width=width, **style)).print(Section(Table("t", "T", columns), rows), rows)
    return stream.getvalue().splitlines()[2:]


def note_at(width, note):
    stream = io.StringIO()
    Text(stream, Style(width=width)).print(Section(Table("t", "T", COLUMNS, notes_above=[note]), []), [])
    lines = stream.getvalue().splitlines()
    return lines[1 : lines.index("")]


@pytest.mark.parametrize("width, first, more", [(40, 3, 3), (41, 3, 3), (120, 10, 9), (200, 10, 9), (None, 10, 9)])
def test_a_note_is_broken_between_words_at_120_at_the_latest_and_goes_on_indented(width, first, more):
    # words of eleven characters, a blank between two, four blanks before what goes on
    lines = note_at(width, " ".join(["one-two-six"] * (first + more + 1)))
    assert lines == [" ".join(["one-two-six"] * first), *(f"    {' '.join(['one-two-six'] * n)}" for n in (more, 1))]


def test_a_word_that_is_longer_than_a_line_is_broken_in_a_terminal_alone():
    assert note_at(40, "x" * 50) == ["x" * 40, "    " + "x" * 10]
    assert note_at(None, "x" * 150) == ["x" * 150]


def test_a_text_is_broken_between_words_and_a_number_never():
    columns = [Column("n", "n", kind="int", priority=0), Column("t", "t", wraps=11, priority=0)]
    rows = [{"n": 12_345, "t": "moa-8K8E128D two one"}]
    assert table_at(22, columns, rows)[2:5] == ["12,345  moa-8K8E128D", "        two one", "------  --------------"]
    assert table_at(20, columns, rows)[2:4] == ["12,345  moa-8K8E128D", "        two one"]


def test_the_column_of_footnotes_stays_in_a_terminal_and_the_notes_stand_below():
    columns = [Column("name", "name"), Column("a", "a" * 20), Column("why", "why", priority=9)]
    stream, rows = io.StringIO(), [Row({"name": "x", "a": "y", "why": "z"}, ["because"])]
    Text(stream, Style(width=24)).print(Section(Table("t", "T", columns, note_column="why"), rows, ["so far"]), rows)
    assert stream.getvalue().splitlines()[2:] == [
        "name  why",
        "----  -----",
        "x     z [1]",
        "----  -----",
        "[1] because",
        "so far",
        "Hidden columns (use",
        "    --wide): aaaaaaaaaaa",
        "    aaaaaaaaa.",
    ]


def test_first_texts_are_broken_then_integers_are_rounded_then_columns_go():
    assert table_at(None)[2] == "layer  1,234,567,890,123       7  one two three"
    assert table_at(44)[2:4] == ["layer  1,234,567,890,123       7  one two", "                                  three"]
    assert table_at(36)[:4] == [
        "           MACs",
        "name          G  params  why",
        "-----  --------  ------  -----------",
        "layer  1,234.57       7  one two",
    ]
    assert table_at(28)[1] == "name          G  why" and "Hidden columns" in " ".join(table_at(28))
    assert table_at(36, unit="raw")[0] == "name                MACs  why"


def test_what_a_row_is_stays_whatever_its_priority():
    assert table_at(28)[1].split() == ["name", "G", "why"]


@pytest.mark.parametrize("width", range(26, 60))
def test_texts_share_the_room_that_is_left(width):
    assert max(map(len, table_at(width))) <= width


def test_a_number_that_is_there_is_never_printed_as_0():
    column = scaled(Column("n", "n", kind="int", of="MACs", sign=True), "M")
    assert [column.text(n) for n in (4_999, -4_999, 0, None, 5_001)] == ["<0.01", ">-0.01", "0", "–", "+0.01"]
    assert scaled(Column("b", "b", "bytes, 2 each", kind="int", of="bytes"), "G").unit == "GB, 2 each"
    assert scaled(Column("n", "n", kind="int"), "M") == Column("n", "n", kind="int")


@pytest.mark.parametrize(
    "largest, unit", [(10**7 - 1, None), (10**7, "M"), (10**11 - 1, "M"), (10**11, "G"), (0, None)]
)
def test_integers_beyond_eight_digits_are_printed_in_m_and_beyond_eleven_in_g(largest, unit):
    assert unit_for(largest) == unit


def test_flops_are_two_for_each_mac():
    columns = [
        Column("macs", "MACs\nexact", kind="int", of="MACs"),
        Column("params", "params", kind="int", of="params"),
    ]
    shown_columns = [Style(flops=True).dressed(column) for column in columns]
    assert [c.text(21) for c in shown_columns] == ["42", "21"] and shown_columns[0].head == "FLOPs\nexact"
    reading = in_flops(Column("torch", "torch", kind="int", of="MACs"))
    assert reading.unit == "FLOPs" and in_flops(reading) is reading
    assert scaled(reading, "M").text(3_000_000) == "6.00"


def test_an_interval_is_a_number_between_two():
    column = Column("tax", "tax", kind="interval", digits=2)
    assert column.text({"value": 1.004, "low": Fraction(1, 3), "high": 2}) == "1.00 [0.33, 2.00]"


def test_verdicts_have_colours_where_they_are_wanted():
    columns = [Column("verdict", "verdict", tones={"reproduced": GOOD})]
    lines = table_at(80, columns, [{"verdict": "reproduced"}, {"verdict": "other"}], colour=True)
    assert lines[2:4] == ["\033[32mreproduced\033[0m", "other"]
    assert "\033" not in "".join(table_at(80, columns, [{"verdict": "reproduced"}]))


def test_columns_of_priority_0_stay_and_are_broken_where_nothing_else_helps():
    columns = [Column(name, name, priority=0) for name in "ab"]
    found = fit(columns, Style(width=23), lambda column: 30, lambda column: 0)
    assert (found.columns, found.widths) == (columns, [11, 10])


def in_terminal(columns, *argv, **environment):
    """What a command prints to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", *argv], stdout=theirs, stderr=subprocess.DEVNULL, cwd=ROOT, env=kept | environment
    ):
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_s_own_width_holds_and_it_has_colours(width):
    argv = ["bench.macs", "--counter", "closed-form"]
    text = in_terminal(width, *argv)
    plain = re.sub(r"\033\[\d+m", "", text)
    assert max(map(len, plain.splitlines())) <= width and "\033[32mreproduced\033[0m" in text
    assert text.splitlines()[-1] == "24 printed MACs: 15 reproduced, 4 explained, 5 no rule."
    assert in_terminal(width, *argv, NO_COLOR="1") == plain


def test_a_pipe_has_no_width_but_that_of_columns():
    def lines(**environment):
        argv = [sys.executable, "-m", "bench.macs", "--counter", "closed-form"]
        kept = {**os.environ, **environment}
        return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env=kept, check=True).stdout.splitlines()

    assert max(map(len, lines())) > 120 and max(map(len, lines(COLUMNS="80"))) <= 80


@pytest.mark.parametrize("columns", ["", "x", "0", "-7", "²", "9" * 5000], ids=lambda text: text[:4])
def test_invalid_columns_means_no_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert Style.of(io.StringIO()).width is None


@pytest.mark.parametrize("columns, width", [("80", 80), ("9" * 4000, 10**4000 - 1)], ids=["80", "4000 digits"])
def test_columns_is_the_width_of_a_pipe(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert Style.of(io.StringIO()).width == width
    assert table_at(width, columns=COLUMNS[:1], rows=())


@pytest.mark.parametrize("locale", [{"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "latin-1"}])
def test_any_locale_will_do(locale):
    argv = [sys.executable, "-m", "bench.macs", "--counter", "closed-form"]
    done = subprocess.run(argv, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONCOERCECLOCALE": "0", **locale})
    assert done.returncode == 0 and b"MAE-7 (Peng 2020)                    63M        ?  " in done.stdout


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


def test_wide_note_wraps_within_the_terminal():
    lines = note_at(40, " ".join([WIDE] * 3))
    assert max(map(display_width, lines)) <= 40 and [line.strip() for line in lines] == [WIDE] * 3


@pytest.mark.parametrize("columns", ["²", "-7", "0", "", "8" * 5000, "eighty"])
def test_columns_without_a_number_is_no_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert Style.of(io.StringIO()).width is None
