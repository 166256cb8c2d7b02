"""The explorer's layers as plain data: equal terms in one group, with the modules that they belong to."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import sympy

from headcount.bench.macs import grid
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry, Ledger, Size
from headcount.formulas.published.expressions import expression
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.forms import LAYER_ACCOUNTS, Form, T, forms
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
PATH = "attn"
"""The module path of a layer."""
ADDED = [account for account in LAYER_ACCOUNTS if account.multiple is None]
"""Accounts with terms of their own."""
COUNTED = {"forward": conventions.equations_18_19, "params": lambda entry: not conventions.router(entry)}
"""Whether the MoA paper's equation of an account counts an entry."""
_BY_KIND = {"scores": "pairs", "values": "pairs", "softmax": "pairs", "rms_norm": "norms", "elementwise": "queries"}
_BY_MODULE = {"q": "queries", "out": "queries", "k": "keys", "v": "keys", "kv": "keys"}


def family(entry: Entry) -> str:
    """Return the key in FAMILIES of an entry. KeyError for an entry of no family."""
    if conventions.router(entry) or entry.path.startswith("router"):
        return "router"
    if entry.kind.startswith("cache"):
        return "cache"
    return _BY_KIND.get(entry.kind) or _BY_MODULE[entry.path.partition("_")[0]]


def as_data() -> dict[str, Any]:
    """Return the layers of :func:`forms` as plain data."""
    return {"forms": [_form(form) for form in forms()]}


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
    by_case = [_groups(form, case) for case in cases]
    accounts = {
        account.name: [
            [places.setdefault(json.dumps(group), len(places)) for group in groups[account.name]] for groups in by_case
        ]
        for account in ADDED
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
        "printed": {
            account: {"name": one.name, "size": node(sympy.expand(one.size)), "where": one.where}
            for account, one in form.equations.items()
        },
        "grid": _grid(form),
    }


def _terms(form: Form, case: Mapping[str, int]) -> Iterator[tuple[Entry, str, Size]]:
    """Yield each entry of a layer with the name of an account and what the entry adds to it, if that is not 0."""
    whole = form.case(case)
    for entry in {_key(entry): entry for entry in (*whole.ledger, *whole.step(T))}.values():
        term = replace(whole, edit=partial(_only, key=_key(entry)))
        yield from ((entry, account.name, size) for account in ADDED if (size := account.of(term)) != 0)


def _key(entry: Entry) -> tuple[str, ...]:
    """Return what is equal of an entry at all sizes."""
    return entry.path, entry.kind, *entry.dims


def _only(form: Ledger, key: tuple[str, ...]) -> Ledger:
    return form.select(lambda entry: _key(entry) == key)


def _groups(form: Form, case: Mapping[str, int]) -> dict[str, list[list[Any]]]:
    """Return by account the groups of equal terms: the family, the factors, and the entries.

    An entry is its path, its kind, the fraction that multiplies the factors, and 1 if the paper counts it, else 0.
    """
    at_case = {symbol(letter): size for letter, size in case.items()}
    usual = {(_key(entry), account): size for entry, account, size in _terms(form, {})}
    groups: dict[str, dict[str, Any]] = {account.name: {} for account in ADDED}
    for entry, account, size in _terms(form, case):
        # written as elsewhere where that is the same
        elsewhere = sympy.sympify(usual.get((_key(entry), account), 0), strict=True)
        times, parts = factors(elsewhere if elsewhere.subs(at_case) == size else size)
        group = groups[account].setdefault(f"{family(entry)} {parts}", [family(entry), parts, []])
        path, counts = f"{PATH}.{entry.path}".rstrip("."), COUNTED.get(account, lambda entry: True)
        group[2].append([path, entry.kind, times.as_integer_ratio(), int(counts(entry))])
    return {name: list(own.values()) for name, own in groups.items()}


def _conditions(form: Form) -> list[list[Any]]:
    """Return what sizes must meet: a chain of sizes that do not fall, or a size that divides another."""
    search = form.variant.search
    example = grid.case_at(form.variant, {**search.example, "T": 1}).config
    found = []
    for text in search.conditions(search.example, example):
        kind, mark = ("divides", " divides ") if " divides " in text else ("chain", "<=")
        sizes = sympy.Tuple(*(expression(side.strip()).value(form.sizes) for side in text.split(mark)))
        found.append([kind, *map(node, sizes)])
    return found


def _grid(form: Form) -> dict[str, Node]:
    """Return the sizes of the grid whose one point is this layer without biases."""
    bias = {"bias": 0} if "bias" in form.variant.grid.letters else {}
    return {**{letter: node(size) for letter, size in form.sizes.items()}, **bias, "d_m": "d_m", "T": "T", "B": "B"}
