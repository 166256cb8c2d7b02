"""The explorer's layers as data: terms that are equal stand together, with the modules that they are of."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import sympy

from headcount.bench.accounts import ACCOUNTS
from headcount.bench.macs import columns, grid
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry, Size
from headcount.formulas.published.expressions import expression
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.forms import GIVEN, LAYER_ACCOUNTS, PATH, Account, Equation, Form
from headcount.reports.explorer.nodes import Node, factors, node

WORDS = {
    "queries": "queries and output",
    "keys": "keys and values",
    "pairs": "products over pairs of tokens",
    "router": "router",
    "cache": "cache",
    "norms": "norms",
}
"""What terms have one colour, with the words for it."""
_OF_KIND = {"scores": "pairs", "values": "pairs", "rms_norm": "norms"}
_OF_PATH = {"q": "queries", "out": "queries", "k": "keys", "v": "keys", "kv": "keys"}


def family(entry: Entry) -> str:
    """Return one of WORDS. KeyError for an entry that is of none."""
    if conventions.router(entry):
        return "router"
    if entry.kind.startswith("cache"):
        return "cache"
    return _OF_KIND.get(entry.kind) or _OF_PATH[entry.path.removeprefix(f"{PATH}.").partition("_")[0]]


def as_data(layers: Sequence[Form]) -> dict[str, Any]:
    """Return the forms as plain data."""
    return {"forms": [_form(form) for form in layers]}


def _form(form: Form) -> dict[str, Any]:
    """Return a form: its letters, what its sizes must meet, its terms, and how the command line asks for it.

    ``cases``: sizes at which the terms are others than elsewhere; the last one that holds is meant. ``accounts``: by
    account the groups of equal terms of each case.
    """
    special = {letter: sizes for letter, sizes in form.of.search.cases.items() if form.sizes[letter] == symbol(letter)}
    chosen = product(*((None, *sizes) for sizes in special.values()))
    cases = [{k: size for k, size in zip(special, sizes, strict=True) if size is not None} for sizes in chosen]
    cases.sort(key=len)
    return {
        "name": form.name,
        "label": form.label,
        "of": form.of.name,
        "letters": form.letters,
        "needs": _conditions(form),
        "cases": cases,
        "accounts": {account.name: [_groups(form, account, case) for case in cases] for account in LAYER_ACCOUNTS},
        "printed": {account.name: found for account in LAYER_ACCOUNTS if (found := _printed(form, account))},
        "grid": _grid(form),
        "columns": _columns(form),
    }


def _groups(form: Form, account: Account, case: Mapping[str, int]) -> list[list[Any]]:
    """Return the groups of equal terms: the family, the factors, and entries as path, kind, how many times, billed.

    An entry is billed unless the paper's equation leaves it out. ArithmeticError where the sum is not the account.
    """
    groups: dict[str, list[Any]] = {}
    total = 0
    at_case = {symbol(letter): size for letter, size in case.items()}
    usual = {(entry.path, entry.kind): size for entry, size in account.terms(form, {})}
    for entry, size in account.terms(form, case):
        if size == 0:
            continue
        total += size
        # written as elsewhere where that is the same
        elsewhere = sympy.sympify(usual.get((entry.path, entry.kind), 0), strict=True)
        times, parts = factors(elsewhere if elsewhere.subs(at_case) == size else size)
        billed = not account.billed or bool(account.billed(entry))
        group = groups.setdefault(f"{family(entry)} {parts}", [family(entry), parts, []])
        group[2].append([entry.path, entry.kind, [times.numerator, times.denominator], billed])
    _same(f"the terms of {form.label}", total, account.total(form, case))
    return list(groups.values())


def _same(what: str, found: Size, wanted: Size) -> None:
    if sympy.expand(found - wanted) != 0:
        raise ArithmeticError(f"{what}: {found} is not {wanted}")


def _conditions(form: Form) -> list[list[Any]]:
    """What sizes must meet: a chain of sizes that do not fall, or one that divides another. What any sizes meet that
    are at least 1 is left out."""
    search = form.of.search
    example = grid.case_at(form.of, {**search.example, "T": 1}).config
    found = []
    for text in search.conditions(search.example, example):
        kind, mark = ("divides", " divides ") if " divides " in text else ("chain", "<=")
        values = (expression(side.strip()).value(form.sizes) for side in text.split(mark))
        first, *others = (sympy.sympify(value, strict=True) for value in values)
        always = first == 1 and (kind == "divides" or len(others) == 1 and others[0].is_Symbol)
        found += [] if always else [[kind, node(first), *map(node, others)]]
    return found


def _printed(form: Form, account: Account) -> dict[str, Any]:
    """What the paper prints of this account; empty where it prints nothing."""
    equation = form.equations.get(account.name)
    if equation is None:
        return {}
    missing = sum(size for entry, size in account.terms(form, {}) if not account.billed(entry))
    where = {symbol(k): size for k, size in equation.where.items()}
    exact, left_out = (sympy.sympify(size, strict=True).subs(where) for size in (account.total(form, {}), missing))
    _same(f"{equation.name} and what it leaves out", equation.size + left_out, exact)
    return {"name": equation.name, "size": node(sympy.expand(equation.size)), "where": _where(equation)}


def _where(equation: Equation) -> list[list[Node]]:
    """Pairs of sizes that must be equal, without quotients."""
    return [[node(symbol(letter) * below), node(above)] for letter, above, below in (
        (letter, *sympy.fraction(size)) for letter, size in equation.where.items()
    )]  # fmt: skip


def _grid(form: Form) -> dict[str, Node]:
    """The sizes of a grid of one point that is this layer, which has no biases."""
    bias = {"bias": 0} if "bias" in form.of.grid.letters else {}
    return {**{letter: node(size) for letter, size in form.sizes.items()}, **bias, "d_m": "d_m", "T": "T", "B": "B"}


def _columns(form: Form) -> list[str]:
    """The head of the column of the command's table that has each account."""
    point = " ".join(f"{letter}={size}" for letter, size in {**form.of.search.example, "T": 1}.items())
    keys = [account.key for account in LAYER_ACCOUNTS]
    asked = [key for key in keys if key in ACCOUNTS]
    section = columns.extended(grid.section(grid.parse(point), [], None), asked, GIVEN)
    heads = {column.key: column.head.replace("\n", " ").removeprefix("= ") for column in section.table.columns}

    def head(key: str) -> str:
        own = f"{key}{columns.IDEAL}" if key in ACCOUNTS else f"ideal_{key}"
        there = own if form.ideal and own in heads else key
        # of a layer as released the column is its ideal form's, and one without routing has none
        if there == "active_params" and (section.ideal and not form.ideal or there not in heads):
            there = "params"
        return heads[there]

    return [head(key) for key in keys]
