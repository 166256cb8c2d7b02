"""The explorer's data and page without a browser: exact integers, conditions, printed cells, no external resource."""

import json
import re
from fractions import Fraction
from functools import cache
from math import prod

import pytest
import sympy

from headcount.bench.case import Case
from headcount.bench.macs import figures as sections
from headcount.bench.macs import grid
from headcount.formulas.published import figures, tables
from headcount.formulas.published.verdicts import judge
from headcount.models.configs.base import ConfigError
from headcount.reports.explorer import forms, nodes, page
from tests.reports import explorer_facts
from tests.reports.layers_by_hand import ACCOUNTS, FORMS, can_build, expected, points

OPERATORS = {
    "+": lambda *v: sum(v),
    "*": lambda *v: prod(v),
    "min": lambda *v: min(v),
    "ceil": lambda a, b: -(-a // b),
    "/": lambda a, b: whole(Fraction(a, b)),
}


@cache
def by_name():
    """Return the page's forms by name."""
    return {form["name"]: form for form in explorer_facts.data()["forms"]}


def whole(value):
    assert value == int(value)
    return int(value)


def value(node, z):
    if isinstance(node, list):
        return OPERATORS[node[0]](*(value(part, z) for part in node[1:]))
    return z[node] if isinstance(node, str) else node


def total(form, account, z, printed=False):
    """Sum as the page's exact.js and layers.js do; ``printed``: only what the paper's equation counts."""
    holding = [i for i, case in enumerate(form["cases"]) if all(z[k] == size for k, size in case.items())][-1]
    of, multiple = next(one["multiple"] for one in explorer_facts.data()["accounts"] if one["name"] == account)
    groups = [form["groups"][place] for place in form["accounts"][of][holding]]
    return multiple * sum(
        whole(Fraction(*times) * prod(value(part, z) for part in parts))
        for _, parts, entries in groups
        for *_, times, counted in entries
        if counted or not printed
    )


def is_refused(form, z):
    """Return whether a condition fails."""
    for kind, *sides in form["needs"]:
        sizes = [value(side, z) for side in sides]
        if kind == "divides" and sizes[1] % sizes[0] or kind == "chain" and sorted(sizes) != sizes:
            return True
    return False


def test_accounts_equal_python_integers():
    tried = 0
    for z in points(seed=11, count=120):
        for form, accounts in expected(z).items():
            assert is_refused(by_name()[form], z) == (accounts is None), (form, z)
            for account, text in (accounts or {}).items():
                assert str(total(by_name()[form], account, z)) == text, (form, account, z)
                tried += int(text) > 2**53
    assert tried > 500
    assert list(by_name()) == list(FORMS) and [a["name"] for a in explorer_facts.data()["accounts"]] == list(ACCOUNTS)


@pytest.mark.parametrize(
    "form", [form for form in forms.forms() if form.letters != ["d_m"]], ids=lambda form: form.name
)
def test_invalid_sizes_are_refused(form):
    """Sizes below 1, which no field of the page takes, are not tested."""
    refused = 0
    for z in points(seed=23, count=60):
        point = {letter: value(node, z) for letter, node in by_name()[form.name]["grid"].items()}
        try:
            grid.case_at(form.variant, point)
            can = True
        except ConfigError:
            can = False
        assert can == (not is_refused(by_name()[form.name], z)) == can_build(form.name, z), z
        refused += not can
    assert refused or not by_name()[form.name]["needs"]


def test_printed_equations_equal_counted_terms():
    tried = set()
    for z in points(seed=5, count=20):
        z |= {"g": z["h"], "d_h": z["d_h"], "d_m": z["h"] * z["d_h"]}
        for form in by_name().values():
            for account, equation in form["printed"].items():
                assert all(value(a, z) == value(b, z) for a, b in equation["where"])
                assert value(equation["size"], z) == total(form, account, z, printed=True)
                tried.add((form["name"], account))
    assert tried == {(form, account) for form in ("width", "mha", "moa") for account in ("forward", "params")}


def test_sizes_are_nodes():
    a, b, c = sympy.symbols("h s r", positive=True, integer=True)
    assert nodes.node((a + b - abs(a - b)) / 2) == ["min", "h", "s"]
    assert nodes.node(-(-a * b // c)) == ["ceil", ["*", "h", "s"], "r"]
    assert nodes.node(a - b + 1) == ["+", "h", ["*", "s", -1], 1]
    assert nodes.node(a * b / c) == ["/", ["*", "h", "s"], "r"]
    assert nodes.factors(a * (1 - b) * c**2 / 2) == (Fraction(-1, 2), ["h", "r", "r", ["+", "s", -1]])
    with pytest.raises(ValueError, match="is no sum, product, quotient, minimum or ceiling"):
        nodes.node(sympy.sin(a))


def test_printed_cells_match_verdicts():
    published = explorer_facts.data()["published"]
    assert {"moa-table1", "moa-table2", "moa-table3", "moh-dit"} <= {table["name"] for table in published["tables"]}
    for table in (table for table in published["tables"] if table["name"] in tables.names()):
        typed = tables.load(table["name"])
        verdicts = judge(typed, {row.name: Case.of(row.preset) for row in typed.rows})
        for column in table["columns"]:
            rule = typed.column(column["quantity"])
            for name, preset, cell, status, because, *adjust in column["rows"]:
                sum_ = counted(published, column, preset)
                assert sum_ == rule.total(Case.of(preset))
                prints = rule.printing.like(cell).text(sum_) == cell
                if rule.judged:
                    assert (status, because) == (verdicts[name].status, verdicts[name].because or "")
                    assert prints == (status == "reproduced") or rule.quantity != "macs"
                for terms_ in adjust:
                    closed = sum_ + sum(amount for _, amount in terms_)
                    assert rule.printing.like(cell).text(closed) == cell or typed.row(name).rounded_from


def counted(published, column, model):
    """Sum the parts that the column's rule counts."""
    labels = list(published["parts"])
    sizes = published["models"][model][column["quantity"]]
    return sum(column["multiplicity"][labels[place]] * int(size) for place, size in sizes)


def test_figures_match_verdicts():
    published, tried = explorer_facts.data()["published"], 0
    for table in (table for table in published["tables"] if table["name"] in figures.names()):
        typed = figures.load(table["name"])
        judged = {(c.model.name, c.figure.name): c for c in figures.judge(typed, sections.cases())}
        for column in table["columns"]:
            for name, model, text, status, because, *own in column["rows"]:
                cell = judged[name, column["quantity"]]
                assert (counted(published, column, model), status, because) == (
                    cell.value.low,
                    cell.verdict,
                    cell.because,
                )
                rule = own[1] if own else column["print"]
                above, below = rule["shift"]
                steps = Fraction(cell.value.low * 10 ** rule["decimals"], int(rule["scale"]) * int(rule["multiple"]))
                last = int(rule["multiple"]) * ((steps + Fraction(above, below)) // 1)
                prints = last == Fraction(text.partition("E")[0]) * 10 ** rule["decimals"]
                assert prints == (status in ("reproduced", "explained (sizes fitted)"))
                tried += 1
    assert tried > 120


def test_each_published_table_is_served_or_says_why_not():
    published = explorer_facts.data()["published"]
    served, absent = ([table["name"] for table in published[key]] for key in ("tables", "absent"))
    assert sorted(served + absent) == sorted([*tables.names(), *figures.names()])
    assert all(table["why"] and not set(table) & {"columns"} for table in published["absent"])


def test_models_of_training_tables_are_offered():
    offered = {one["name"]: one for one in explorer_facts.data()["presets"]}
    assert offered["mistral-7b"]["sizes"] == {"d_m": 4096, "h": 32, "g": 8, "d_h": 128}
    assert offered["qwen2_5-72b"]["sizes"] == {"d_m": 8192, "h": 64, "g": 8, "d_h": 128}
    latent = {"d_m": 7168, "h": 128, "g": 128, "d_h": 128, "d_r": 64, "d_v": 128, "d_c": 512, "d_q": 1536}
    assert offered["deepseek-v3"]["sizes"] == latent
    z = {"T": 4096, "B": 1, **latent}
    # arXiv 2412.19437: 1536 (7168 + 128 * 192) + 576 * 7168 + 512 * 128 * 256 + 128 * 128 * 7168, and two norms
    weights = 1536 * (7168 + 128 * 192) + 576 * 7168 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    assert total(by_name()[offered["deepseek-v3"]["form"]], "params", z) == weights


def test_page_loads_nothing():
    text = explorer_facts.text()
    # a layer's and the papers' data, and 180 KB of whole models: the forms of all presets, ranks and searches
    assert len(text.encode()) <= 425_000
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|url\(|\bsrc=|@import|<link|\beval\(|Function\(|setAttributeNS", text)
    assert text == page.render(json.loads(json.dumps(explorer_facts.data())))
