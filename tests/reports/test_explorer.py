"""The explorer's data and page, without a browser: its nodes give Python's integers, its file loads nothing."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import prod

import pytest
import sympy

from headcount.bench.case import Case
from headcount.bench.macs import grid
from headcount.formulas import moa
from headcount.formulas.published import tables
from headcount.formulas.published.verdicts import judge
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError
from headcount.reports.explorer import forms, nodes, page, terms
from tests.reports import explorer_facts as made
from tests.reports.layers_by_hand import ACCOUNTS, FORMS, exact, points, possible, wanted

OPERATORS = {
    "+": lambda *v: sum(v),
    "*": lambda *v: prod(v),
    "min": lambda *v: min(v),
    "ceil": lambda a, b: -(-a // b),
    "/": lambda a, b: whole(Fraction(a, b)),
}


@cache
def by_name():
    """The page's forms by name."""
    return {form["name"]: form for form in made.data()["forms"]}


def whole(value):
    assert value == int(value)
    return int(value)


def value(node, z):
    if isinstance(node, list):
        return OPERATORS[node[0]](*(value(part, z) for part in node[1:]))
    return z[node] if isinstance(node, str) else node


def total(form, account, z):
    """As the page's exact.js and layers.js do it."""
    holding = [i for i, case in enumerate(form["cases"]) if all(z[k] == size for k, size in case.items())][-1]
    groups = form["accounts"][account][holding]
    return sum(
        whole(Fraction(*times) * prod(value(part, z) for part in parts))
        for _, parts, entries in groups
        for *_, times, _ in entries
    )


def reason(form, z):
    """Whether a condition fails."""
    for kind, *sides in form["needs"]:
        sizes = [value(side, z) for side in sides]
        if kind == "divides" and sizes[1] % sizes[0] or kind == "chain" and sorted(sizes) != sizes:
            return True
    return False


def test_every_account_of_every_form_is_pythons_integer():
    tried = 0
    for z in points(seed=11, count=120):
        for form, accounts in wanted(z).items():
            assert reason(by_name()[form], z) == (accounts is None), (form, z)
            for account, text in (accounts or {}).items():
                assert str(total(by_name()[form], account, z)) == text, (form, account, z)
                tried += int(text) > 2**53
    assert tried > 500
    assert list(by_name()) == list(FORMS) and [a["name"] for a in made.data()["accounts"]] == list(ACCOUNTS)


@pytest.mark.parametrize(
    "form", [form for form in forms.forms() if form.letters != ["d_m"]], ids=lambda form: form.name
)
def test_sizes_are_refused_where_the_configuration_refuses_them(form):
    """But for sizes below 1, which no field of the page takes."""
    refused = 0
    for z in points(seed=23, count=60):
        point = {letter: value(node, z) for letter, node in by_name()[form.name]["grid"].items()}
        try:
            grid.case_at(form.of, point)
            can = True
        except ConfigError:
            can = False
        assert can == (not reason(by_name()[form.name], z)) == possible(form.name, z), z
        refused += not can
    assert refused or not by_name()[form.name]["needs"]


def test_sizes_are_nodes():
    a, b, c = sympy.symbols("h s r", positive=True, integer=True)
    assert nodes.node((a + b - abs(a - b)) / 2) == ["min", "h", "s"]
    assert nodes.node(-(-a * b // c)) == ["ceil", ["*", "h", "s"], "r"]
    assert nodes.node(a - b + 1) == ["+", "h", ["*", "s", -1], 1]
    assert nodes.node(a * b / c) == ["/", ["*", "h", "s"], "r"]
    assert nodes.factors(a * (1 - b) * c**2 / 2) == (Fraction(-1, 2), ["h", "r", "r", ["+", "s", -1]])
    with pytest.raises(ValueError, match="is no sum, product, quotient, minimum or ceiling"):
        nodes.node(sympy.sin(a))


def test_terms_that_are_not_the_account_are_refused():
    form = next(form for form in forms.forms() if form.name == "moa")
    account = replace(forms.LAYER_ACCOUNTS[0], total=lambda form, cases: form.ledger(cases).macs + symbol("T"))
    with pytest.raises(ArithmeticError, match="the terms of MoA"):
        terms._groups(form, account, {})


def test_an_equation_that_is_not_what_is_billed_is_refused():
    form = next(form for form in forms.forms() if form.name == "moa")
    T, K, D, d_m = (symbol(letter) for letter in ("T", "K", "D", "d_m"))
    wrong = forms.Equation("Eq. 18", moa.macs_eq18(T=T, K=K, D=D, d_m=d_m) + T)
    with pytest.raises(ArithmeticError, match="Eq. 18 and what it leaves out"):
        terms._printed(replace(form, equations={"forward": wrong}), forms.LAYER_ACCOUNTS[0])


def test_g_of_a_moa_layer_changes_no_account():
    """So the page has no such size: with g key/value heads an expert is g heads of width D / g."""
    for z in points(seed=3, count=5):
        sizes = {letter: z[letter] for letter in ("B", "T", "d_m", "E", "K", "D")}
        one, some = (moa.layer("", S=z["T"], n=z["T"] - 1, g=g, **sizes) for g in (1, 5))
        assert (one.macs, one.params, one.active_params) == (some.macs, some.params, some.active_params)
        assert [e for e in one if e.kind.startswith("cache")] == [e for e in some if e.kind.startswith("cache")]


def test_presets_are_the_layers_of_the_papers_models():
    names = [preset["name"] for preset in made.data()["presets"]]
    assert len(set(names)) == len(names) > 15
    for preset in made.data()["presets"]:
        letters = Case.of(preset["name"]).config.attention.letters() if "moh" not in preset["name"] else {}
        assert {k: v for k, v in letters.items() if k in preset["sizes"] and k != "g"}.items() <= preset[
            "sizes"
        ].items()
    moa_layer = next(preset for preset in made.data()["presets"] if preset["name"] == "moa-16K32E256D")
    assert moa_layer["sizes"] | {"K": 16, "E": 32, "D": 256, "d_m": 512, "h": 8, "d_h": 64} == moa_layer["sizes"]
    assert not {"moh-llama3-8b", "moh-dit-s2-90"} & set(names), "a router of norms, and layers that differ"


def test_every_judged_cell_prints_as_its_verdict_says():
    judged = made.data()["judged"]
    assert {"moa-table1", "moa-table2", "moa-table3", "moh-dit"} <= {table["name"] for table in judged["tables"]}
    for table in judged["tables"]:
        typed = tables.load(table["name"])
        verdicts = judge(typed, {row.name: Case.of(row.preset) for row in typed.rows})
        for column in table["columns"]:
            rule = typed.column(column["of"])
            for name, preset, cell, status, because, *adjust in column["rows"]:
                parts = judged["models"][preset][column["of"]]
                sum_ = sum(column["bills"][part] * size for part, size in parts.items())
                assert sum_ == rule.total(Case.of(preset))
                prints = rule.printing.like(cell).text(sum_) == cell
                if rule.judged:
                    assert (status, because) == (verdicts[name].status, verdicts[name].because or "")
                    assert prints == (status == "reproduced") or rule.quantity != "macs"
                for terms_ in adjust:
                    closed = sum_ + sum(amount for _, amount in terms_)
                    assert rule.printing.like(cell).text(closed) == cell or typed.row(name).rounded_from


def test_the_page_is_one_small_file_that_loads_nothing():
    text = made.text()
    assert len(text.encode()) <= 200_000
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|url\(|\bsrc=|@import|<link|\beval\(|Function\(|setAttributeNS", text)
    assert text == page.render(json.loads(json.dumps(made.data())))


def test_data_cannot_end_the_element_that_holds_it():
    assert made.REASON.replace("</", "<\\/") in made.text()
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', made.text(), re.S)[1]
    assert json.loads(inside) == json.loads(json.dumps(made.data()))


def test_without_a_program_there_is_a_table_of_the_first_sizes():
    start = made.data()["start"]
    static = re.search(r'<section id="static">(.*?)</section>', made.text(), re.S)[1]
    for label, form in ((form["label"], form["name"]) for form in made.data()["forms"]):
        row = re.search(rf'<th scope="row">{re.escape(label)}</th>(.*?)</tr>', static)[1]
        shown = [int(text.replace(",", "")) for text in re.findall(r">([\d,]+)<", row)]
        assert shown == [exact(account, form, start) for account in page.STATIC]
