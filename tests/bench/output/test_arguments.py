"""--help as wide as a terminal that is neither too narrow nor too wide, and values that nobody means."""

import argparse
import io
from fractions import Fraction

import pytest

from headcount.bench.output.arguments import Value
from headcount.bench.render import emit
from headcount.bench.table import Column, Row, Section, Table
from headcount.models.configs.numbers import LONGEST


@pytest.mark.parametrize(
    "text, value", [("7" * LONGEST, int("7" * LONGEST)), ("1e999", 10**999), ("1E-2", Fraction(1, 100))]
)
def test_long_numbers_are_parsed(text, value):
    assert Value("number", Fraction)(text) == value


@pytest.mark.parametrize("text", ["7" * (LONGEST + 1), "1e1000", "1E+0_999", "1e-9999", "1/0", "seven", ""])
def test_invalid_number_raises(text):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        Value("number of rows", Fraction)(text)
    assert str(error.value) == f"invalid number of rows value: {text!r}"


def test_csv_escapes_formulas():
    columns = [Column("n", "n", kind="int", words=True), Column("path", "path", code=True), Column("t", "t")]
    names = ["=1+1", "+x", "-x", "@x", "\tx", "a=b"]
    rows = [Row({"n": 7, "path": name, "t": name.strip()}) for name in names]
    rows += [Row({"n": "failed", "path": None, "t": "a,b"})]
    stream = io.StringIO()
    emit([Section(Table("t", "T", columns), rows)], "csv", stream)
    assert stream.getvalue().splitlines() == [
        "n,path,t", "7,'=1+1,=1+1", "7,'+x,+x", "7,'-x,-x", "7,'@x,@x", "7,'\tx,x", "7,a=b,a=b", ',,"a,b"',
    ]  # fmt: skip


def test_csv_integers_and_intervals():
    interval = {"value": Fraction(1, 4), "low": 0.125, "high": 2}
    columns = [Column("n", "n", kind="int"), Column("tax", "tax", kind="interval", digits=2)]
    rows = [
        Row({"n": 10**20, "tax": interval}),
        Row({"n": None, "tax": None}),
        Row({"n": 7, "tax": interval}, total=True),
    ]
    stream = io.StringIO()
    emit([Section(Table("t", "T", columns), rows)], "csv", stream)
    assert stream.getvalue() == "n,tax.value,tax.low,tax.high\n100000000000000000000,0.25,0.125,2\n,,,\n"
