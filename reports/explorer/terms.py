"""The explorer's layers as plain data: equal terms in one group, with the modules that they belong to."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import sympy

from headcount.bench.macs import grid
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.formulas.published.expressions import expression
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.forms import LAYER_ACCOUNTS, PATH, Account, Equation, Form
from headcount.reports.explorer.nodes import Node, factors, node

FAMILIES = {
    "queries": "queries and output",
    "keys": "keys and values",
    "pairs": "products over pairs of tokens",
    "router": "router",
    "cache": "cache",
    "norms": "norms",
}
"""The families of terms, one colour each, with their labels."""
_BY_KIND = {"scores": "pairs", "values": "pairs", "softmax": "pairs", "rms_norm": "norms", "elementwise": "queries"}
_BY_MODULE = {"q": "queries", "out": "queries", "k": "keys", "v": "keys", "kv": "keys"}


def family(entry: Entry) -> str:
    """Return the key in FAMILIES of an entry. KeyError for an entry of no family."""
    if conventions.router(entry) or entry.path.startswith(f"{PATH}.router"):
        return "router"
    if entry.kind.startswith("cache"):
        return "cache"
    return _BY_KIND.get(entry.kind) or _BY_MODULE[entry.path.removeprefix(f"{PATH}.").partition("_")[0]]


def as_data(layers: Sequence[Form]) -> dict[str, Any]:
    """Return the forms as plain data."""
    return {"forms": [_form(form) for form in layers]}


def _form(form: Form) -> dict[str, Any]:
    """Return a form: its letters, the conditions on its sizes, its terms, and its options on the command line.

    ``cases``: sizes with terms of their own; the last case that fits the sizes holds. ``groups``: of equal terms.
    ``accounts``: by account the places of the groups of each case.
    """
    special = {
        letter: sizes for letter, sizes in form.variant.search.cases.items() if form.sizes[letter] == symbol(letter)
    }
    chosen = product(*((None, *sizes) for sizes in special.values()))
    cases = [{k: size for k, size in zip(special, sizes, strict=True) if size is not None} for sizes in chosen]
    cases.sort(key=len)
    places: dict[str, int] = {}
    accounts = {
        account.name: [
            [places.setdefault(json.dumps(group), len(places)) for group in _groups(form, account, case)]
            for case in cases
        ]
        for account in LAYER_ACCOUNTS
        if account.multiple is None
    }
    return {
        "name": form.name,
        "label": form.label,
        "variant": form.variant.name,
        "letters": form.letters,
        "needs": _conditions(form),
        "cases": cases,
        "groups": [json.loads(group) for group in places],
        "accounts": accounts,
        "printed": {account: _printed(equation) for account, equation in form.equations.items()},
        "grid": _grid(form),
    }


def _groups(form: Form, account: Account, case: Mapping[str, int]) -> list[list[Any]]:
    """Return the groups of equal terms: the family, the factors, and the entries.

    An entry is its path, its kind, the fraction that multiplies the factors, and 1 if the paper counts it, else 0.
    """
    groups: dict[str, list[Any]] = {}
    at_case = {symbol(letter): size for letter, size in case.items()}
    usual = {(entry.path, entry.kind): size for entry, size in account.terms(form, {})}
    for entry, size in account.terms(form, case):
        if size == 0:
            continue
        # written as elsewhere where that is the same
        elsewhere = sympy.sympify(usual.get((entry.path, entry.kind), 0), strict=True)
        times, parts = factors(elsewhere if elsewhere.subs(at_case) == size else size)
        group = groups.setdefault(f"{family(entry)} {parts}", [family(entry), parts, []])
        group[2].append([entry.path, entry.kind, times.as_integer_ratio(), int(account.is_counted(entry))])
    return list(groups.values())


def _conditions(form: Form) -> list[list[Any]]:
    """Return what sizes must meet: a chain of sizes that do not fall, or a size that divides another.

    A condition that all sizes of at least 1 meet is left out.
    """
    search = form.variant.search
    example = grid.case_at(form.variant, {**search.example, "T": 1}).config
    found = []
    for text in search.conditions(search.example, example):
        kind, mark = ("divides", " divides ") if " divides " in text else ("chain", "<=")
        first, *others = sympy.Tuple(*(expression(side.strip()).value(form.sizes) for side in text.split(mark)))
        is_always_true = first == 1 and (kind == "divides" or len(others) == 1 and others[0].is_Symbol)
        if not is_always_true:
            found.append([kind, node(first), *map(node, others)])
    return found


def _printed(equation: Equation) -> dict[str, Any]:
    """Return an equation with the pairs of sizes that must be equal for it to apply, without quotients."""
    where = [(symbol(letter), *sympy.fraction(size)) for letter, size in equation.where.items()]
    pairs = [[node(letter * below), node(above)] for letter, above, below in where]
    return {"name": equation.name, "size": node(sympy.expand(equation.size)), "where": pairs}


def _grid(form: Form) -> dict[str, Node]:
    """Return the sizes of the grid whose one point is this layer without biases."""
    bias = {"bias": 0} if "bias" in form.variant.grid.letters else {}
    return {**{letter: node(size) for letter, size in form.sizes.items()}, **bias, "d_m": "d_m", "T": "T", "B": "B"}
