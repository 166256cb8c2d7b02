"""What a derivation printed, as polynomials."""

import json
import subprocess
import sys
from pathlib import Path

import sympy

from headcount.formulas.symbols import symbol

ROOT = Path(__file__).parents[3]


def derived_outside(names, *argv):
    """The same from a process of its own: the test run checks types, and a symbol is no int."""
    command = [sys.executable, "-m", "bench.derive", *argv, "--vars", names, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return polynomials(done.stdout, names)


def polynomials(out, names):
    table = json.loads(out)["tables"][0]
    symbols = {name: symbol(name) for name in names.split(",")}
    rows = {row["kind"]: sympy.sympify(row["text"].replace("^", "**"), locals=symbols) for row in table["rows"]}
    return rows, table
