"""The explorer in headless Chromium: its integers, rounding, address, crossings and commands agree with Python."""

import json
import shlex
from dataclasses import fields, replace

import pytest

from headcount.bench.accounts import Assumptions, kv_bytes
from headcount.bench.case import Case, layers_of
from headcount.bench.commands.grid import main
from headcount.bench.macs.published import ReproducedTable
from headcount.formulas.published.tables import load_tables
from headcount.models.configs import presets
from tests.reports import chromium, explorer_facts
from tests.reports.explorer_layers import ACCOUNTS, FORMS, case_of, exact, expected, points

pytestmark = chromium.needed
POINTS = points(seed=2210, count=120)
OTHER = {"T": 37, "K": 3, "E": 5, "D": 24, "s": 1, "r": 3, "g": 2, "B": 3}
BELOW = {"K": 9, "D": 30, "w": 40}
NEAR = [
    {
        **p,
        "T": 1,
        "d_m": 16 + p["d_m"] % 40,
        "E": 9 + p["E"] % 12,
        **{letter: 1 + p[letter] % most for letter, most in BELOW.items()},
    }
    for p in POINTS
    if p["h"] % p["g"] == 0
]
"""Layers that cost about as much as MHA of their width."""
EQUAL = [z | {"g": z["h"], "d_m": z["h"] * z["d_h"]} for z in points(seed=5, count=20)]
"""Layers that the printed equations of MHA apply to."""
ADDED = (0, 1, 3, 10, 499_999, 500_000, 12_345_678)
EVALUATE = """
const { FORMS, DATA, PUBLISHED, bigs, total, whyNot, fromHash, toHash, printed, crossingsOf } = headcount;
const { chipsOf, printedOf, reproduce } = headcount;
const evaluated = points.map((point) => {
  const sizes = bigs(point);
  const accounts = (form) => DATA.accounts.map(({ name }) => [name, String(total(form, name, sizes))]);
  const one = (form) => [form.name, whyNot(form, sizes) ? null : Object.fromEntries(accounts(form))];
  return Object.fromEntries(FORMS.map(one));
});
"""
CALL = """
const hash = toHash(fromHash("T=77&K=3&s=0&account=decode&show=moa,mla&printed=1&tab=judge&cell=a.cpu.torch"));
const junk = fromHash("T=-5&K=1e9&d_m=0&account=nothing&tab=<b>&E=12345678901&h=7.5&unknown=1&toString=2");
const hashes = { again: toHash(fromHash(hash)), hash, start: toHash(fromHash("")), junk: toHash(junk) };
const ofMacs = PUBLISHED.tables.filter(({ columns }) => !columns[0].label);
const texts = ({ quantity, print, rows }) => rows.map(([, preset, cell, , , , own]) => {
  const sizes = PUBLISHED.models[preset][quantity];
  return sizes.map(([, size]) => added.map((n) => printed(BigInt(size) * 7n + BigInt(n), own || print)));
});
const rounded = ofMacs.map(({ columns }) => columns.map(texts));
const labels = Object.keys(PUBLISHED.parts);
const figures = PUBLISHED.tables.filter((table) => !ofMacs.includes(table)).flatMap(({ columns }) =>
  columns.flatMap(({ quantity, multiplicity, print, rows }) => rows.map(([, model, cell, status, , , own]) => {
    const counted = PUBLISHED.models[model][quantity].filter(([place]) => multiplicity[labels[place]]);
    const sum = counted.reduce((sum, [, size]) => sum + BigInt(size), 0n);
    return [cell, status, printed(sum, own || print)];
  })));
const crossings = ["forward", "windowed"].map((account) => near.map((point) => crossingsOf(
  FORMS.slice(0, 4), account, bigs(point)).map(({ T, sign, a, b }) => [a.name, b.name, Number(T), sign])));
const equations = equal.map((point) => FORMS.flatMap((form) => Object.keys(form.printed).map((account) => {
  const counted = chipsOf(form, account, bigs(point), true).filter(({ out }) => !out);
  const sum = counted.reduce((sum, { value }) => sum + value, 0n);
  return [form.name, account, String(printedOf(form, account, bigs(point)).value), String(sum)];
})));
const sizes = bigs(point);
const commands = FORMS.flatMap((form) => DATA.accounts.map((account) =>
  ({ command: reproduce(form, account, sizes), value: String(total(form, account.name, sizes)) })));
answer({ evaluated, hashes, rounded, figures, crossings, equations, commands });
"""


def point():
    """Return the first sizes with some replaced."""
    return explorer_facts.data()["start"] | OTHER


def js_constants(**values):
    return "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the answers of the page's functions."""
    program = js_constants(points=POINTS, near=NEAR, equal=EQUAL, point=point(), added=ADDED) + EVALUATE + CALL
    return chromium.run_in_page(tmp_path_factory.mktemp("page"), explorer_facts.text(), program)


def test_random_points_equal_python_integers(answers):
    assert answers["evaluated"] == [expected(point) for point in POINTS]
    accounts = [accounts for point in answers["evaluated"] for accounts in point.values() if accounts]
    numbers = [int(text) for one in accounts for text in one.values()]
    assert len(numbers) > 4_800 and sum(number > 2**53 for number in numbers) > 1_200


def test_printed_equations_equal_counted_terms(answers):
    for found in answers["equations"]:
        printed = {(form, account) for form, account, *_ in found}
        assert printed == {(form, account) for form in ("width", "mha", "moa") for account in ("forward", "params")}
        assert all(equation == counted for *_, equation, counted in found)


def test_rounding_follows_table_rules(answers):
    published, found = explorer_facts.data()["published"], 0
    of_macs = [table for table in published["tables"] if table["name"] in load_tables()]
    for table, columns in zip(of_macs, answers["rounded"], strict=True):
        for column, rows in zip(table["columns"], columns, strict=True):
            figure = ReproducedTable(load_tables()[table["name"]]).printed.column(column["quantity"])
            for (_, preset, cell, *_), texts in zip(column["rows"], rows, strict=True):
                sizes = [int(size) for _, size in published["models"][preset][column["quantity"]]]
                assert texts == [[figure.text(7 * size + n, cell) for n in ADDED] for size in sizes]
                found += len(sizes)
    assert found > 500


def test_printed_figures_match_verdicts(answers):
    assert len(answers["figures"]) > 120
    for cell, status, own in answers["figures"]:
        # fitted sizes are the row's own, or those of another rule
        assert status == "explained (sizes fitted)" or (own == cell) == (status == "reproduced")


def test_address_has_valid_settings_only(answers):
    hashes = answers["hashes"]
    assert hashes["again"] == hashes["hash"] != hashes["start"] == hashes["junk"]


@pytest.mark.parametrize("account", ["forward", "windowed"])
def test_crossings_are_order_changes(answers, account):
    def costs(form, point, T):
        return exact(account, form, {**point, "T": T})

    found = 0
    for point, crossings in zip(NEAR, answers["crossings"][account == "windowed"], strict=True):
        for a, b, T, sign in crossings:
            before, now = (costs(a, point, t) - costs(b, point, t) for t in (T - 1, T))
            assert now * sign > 0 >= before * sign
            found += 1
        for a in ("moa", "mqa"):
            first, last = (costs(a, point, T) > costs("width", point, T) for T in (1, 10**8))
            crossed = any({a, "width"} == {p, q} for p, q, *_ in crossings)
            assert crossed or first == last
    assert found > 4


def test_command_prints_the_number(answers, capsys):
    assert all(case_of(form, point()) for form in FORMS.values())
    assert len(answers["commands"]) == len(FORMS) * len(ACCOUNTS)
    for one in answers["commands"]:
        program, command, *argv = shlex.split(one["command"])
        assert (program, command) == ("headcount", "grid") and main([*argv, "--format", "md"]) == 0
        _, _, row, *_ = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
        cells = [cell.strip().removesuffix(".00") for cell in row.split("|")]
        assert f"{int(one['value']):,}" in cells, one


CLICK = """
const { DATA, FORMS, total, bigs } = headcount;
answer(DATA.presets.map(({ name }) => {
  document.querySelector(`[data-preset="${name}"]`).click();
  const rows = [...document.querySelectorAll("tr[data-form]")];
  const form = FORMS.find((one) => one.name === rows.find((row) => row.className === "chosen").dataset.form);
  const fields = DATA.letters.map(({ letter }) => [letter, document.getElementById(`n-${letter}`).value]);
  const sizes = bigs({ ...Object.fromEntries(fields), T: 1024, B: 1 });
  const costs = ["forward", "params", "cache"].map((account) => Number(total(form, account, sizes)));
  return { name, costs, drawn: [...new Set(rows.map((row) => row.dataset.form))] };
}));
"""


def test_each_chip_opens_the_layer_of_its_preset(tmp_path):
    """The chosen layer costs what the preset's own closed form gives, and layers of other variants are dense."""
    found = chromium.run_in_page(tmp_path, explorer_facts.text(), CLICK)
    assert len(found) == len(explorer_facts.data()["presets"]) > 20
    for chip in found:
        layer = layers_of(presets.preset(chip["name"]))[0]
        sizes = {"bias": False} if "bias" in {field.name for field in fields(layer)} else {}
        case = Case("layer", replace(layer, **sizes), {"batch_size": 1, "tgt_len": 1024, "src_len": 1024})
        given = Assumptions(element_bytes=2)
        assert chip["costs"] == [case.ledger.macs, case.ledger.params, kv_bytes(case, given)], chip["name"]
        variants = {FORMS[form].variant.name for form in chip["drawn"]}
        assert variants == {"mha", layer.variant}, chip["name"]
