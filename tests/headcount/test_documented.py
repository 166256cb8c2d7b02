"""Docstrings that are data are read from the source where Python has thrown them away."""

import subprocess
import sys

import headcount
from headcount import documented
from headcount.formulas import conventions

ROOT = headcount.CHECKOUT
SAYS = """
import sys
from headcount.documented import said
from headcount.formulas import conventions
assert sys.flags.optimize == {level} and ({level} < 2 or conventions.by_name.__doc__ is None)
print(repr((said(conventions.by_name), said("headcount.formulas.conventions"))))
"""


def test_what_python_throws_away_is_read_from_the_source():
    said = [
        subprocess.run(
            [sys.executable, *flags, "-c", SAYS.format(level=level)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flags, level in (([], 0), (["-OO"], 2))
    ]
    assert said[0] == said[1] and "Raises KeyError" in said[0]


def test_what_has_no_docstring_or_no_source_says_nothing():
    def without():
        pass

    assert documented.said(without) == ""
    assert documented.said(eval("lambda: 0")) == ""
    assert documented.said(conventions.by_name).startswith("The convention")
