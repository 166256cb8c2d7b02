"""Run headcount derive and parse the polynomials that it prints."""

import io
import json
from contextlib import redirect_stdout

import sympy

from headcount.bench.derive.__main__ import main
from headcount.formulas.symbols import symbol


def run_derive(names, *argv):
    """Return the polynomials by kind that ``python -m bench.derive`` prints for ``argv``, and the table's facts."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*argv, "--vars", names, "--format", "json"]) == 0, argv
    table = json.loads(out.getvalue())["tables"][0]
    symbols = {name: symbol(name) for name in names.split(",")}
    rows = {row["kind"]: sympy.sympify(row["text"], locals=symbols) for row in table["rows"]}
    return rows, table


def is_equal(polynomial, form):
    """Return whether two polynomials are equal."""
    return sympy.expand(polynomial - form) == 0
