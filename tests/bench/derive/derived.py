"""Polynomials that headcount derive prints."""

import io
import json
from contextlib import redirect_stdout

import sympy

from headcount.bench.derive.__main__ import main
from headcount.formulas.symbols import symbol


def derived(names, *argv):
    """Polynomials by kind of what ``python -m bench.derive`` prints for ``argv``, and the facts beside them."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main([*argv, "--vars", names, "--format", "json"])
    assert code == 0, argv
    table = json.loads(out.getvalue())["tables"][0]
    symbols = {name: symbol(name) for name in names.split(",")}
    rows = {row["kind"]: sympy.sympify(row["text"].replace("^", "**"), locals=symbols) for row in table["rows"]}
    return rows, table
