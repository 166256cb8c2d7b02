"""Parsed numbers have ASCII digits only, and at most LONGEST of them."""

from itertools import product

import pytest

from headcount.models.configs.numbers import LONGEST, decimal, whole

WHOLE = {"0": 0, "-7": -7, "+7": 7, "007": 7, "9" * LONGEST: 10**LONGEST - 1}
DECIMAL = {"0": 0.0, "-7": -7.0, "1.5": 1.5, ".5": 0.5, "2.": 2.0, "1e3": 1000.0, "2.5E-1": 0.25, "+1e+2": 100.0}
NEITHER = ("", " ", "-", "٣", "²", "１", "1_000", "0x10", " 1", "1\n", "nan", "inf", "1/2", "one", "9" * (LONGEST + 1))


@pytest.mark.parametrize("read, kind, values", [(whole, int, WHOLE), (decimal, float, DECIMAL)], ids=["int", "float"])
def test_numbers_are_parsed(read, kind, values):
    for text, value in values.items():
        assert read(text) == value and type(read(text)) is kind


@pytest.mark.parametrize(
    "read, text",
    [*product((whole, decimal), NEITHER), (whole, "1.0"), (whole, "1e3"), (decimal, "1e999"), (decimal, "-1e309")],
)
def test_other_texts_raise(read, text):
    with pytest.raises(ValueError):
        read(text)
