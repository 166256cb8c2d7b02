"""Numbers that somebody writes: the digits 0 to 9 and no others, and no more of them than anybody means."""

import pytest

from headcount.models.configs.numbers import LONGEST, decimal, whole

WHOLE = {"0": 0, "-7": -7, "+7": 7, "007": 7, "9" * LONGEST: 10**LONGEST - 1}
DECIMAL = {"0": 0.0, "-7": -7.0, "1.5": 1.5, ".5": 0.5, "2.": 2.0, "1e3": 1000.0, "2.5E-1": 0.25, "+1e+2": 100.0}
NEITHER = ("", " ", "-", "٣", "²", "１", "1_000", "0x10", " 1", "1\n", "nan", "inf", "1/2", "one", "9" * (LONGEST + 1))


@pytest.mark.parametrize("text", WHOLE)
def test_digits_are_the_number_that_they_write(text):
    assert whole(text) == WHOLE[text] and type(whole(text)) is int


@pytest.mark.parametrize("text", DECIMAL)
def test_a_point_and_an_exponent_are_those_of_a_float(text):
    assert decimal(text) == DECIMAL[text] and type(decimal(text)) is float


@pytest.mark.parametrize("text", NEITHER)
@pytest.mark.parametrize("read", [whole, decimal])
def test_what_is_no_number_for_everybody_is_none(read, text):
    with pytest.raises(ValueError):
        read(text)


@pytest.mark.parametrize("text", ["1.0", "1e3"])
def test_a_whole_number_has_no_point_and_no_exponent(text):
    with pytest.raises(ValueError):
        whole(text)


@pytest.mark.parametrize("text", ["1e999", "-1e309"])
def test_a_number_beyond_all_floats_is_none(text):
    with pytest.raises(ValueError, match="beyond all floats"):
        decimal(text)
