"""Cells of columns, streamed rows, and atomic output files."""

import io
import os
from fractions import Fraction

import pytest

from headcount.bench.column import Column
from headcount.bench.render import RENDERERS, open_output
from tests.bench.made_table import made_table


class Flushed(io.StringIO):
    flushed = 0

    def flush(self):
        self.flushed = len(self.getvalue())


def test_text_is_streamed_by_row():
    stream = Flushed()
    printed = []

    def rows():
        for number in range(3):
            assert stream.flushed == len(stream.getvalue())
            printed.append(stream.flushed)
            yield {"n": number}

    RENDERERS["text"](stream).print(made_table([Column("n", "n", kind="int", width=9)], rows()))
    assert printed == sorted(set(printed)) and printed[0] > 0


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("n", "n", kind="int", sign=True), 0, "0"),
        (Column("n", "n", kind="int", sign=True), -2784, "-2,784"),
        (Column("n", "n", kind="fixed", digits=1), 1234.56, "1,234.6"),
        (Column("n", "n", kind="fixed", digits=2), -0.001, ">-0.01"),
        (Column("n", "n", kind="fixed", digits=2), Fraction(-1, 3), "-0.33"),
        (Column("n", "n", kind="fixed", digits=1, scale=100), 25, "0.2"),
        (Column("n", "n", kind="fixed", digits=1, scale=100), 35, "0.4"),
        (Column("n", "n", kind="fixed", scale=10**6), 60_500_001, "61"),
    ],
)
def test_cell_text(column, value, text):
    assert column.text(value) == text


@pytest.mark.parametrize("value", [1.0, "7", True])
def test_integer_column_rejects_others(value):
    with pytest.raises(TypeError, match=f"^column 'n' holds integers, not {value!r}$"):
        Column("n", "n", kind="int").text(value)


def test_output_file_appears_on_success(tmp_path):
    path = tmp_path / "out.md"
    path.write_text("old")
    with open_output(path) as stream:
        stream.write("new –\n")
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "new –\n"
    assert os.listdir(tmp_path) == ["out.md"]
    os.umask(mask := os.umask(0))
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
