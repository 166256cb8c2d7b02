"""Every printed row follows its table's rule or has the verdict of the data file."""

from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.bench.case import ledger_of, resolve_lengths
from headcount.bench.macs.published import Case
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.formulas.published.rounding import Printing
from headcount.formulas.published.tables import VERDICTS, load_tables
from headcount.formulas.published.verdicts import common_vocabulary, implied_vocabulary, judge
from headcount.models.configs.presets import preset


def cases_of(table):
    return {row.name: Case.of(row.preset) for row in table.rows}


TABLES = load_tables()
ROWS = [(name, row.name) for name, table in TABLES.items() for row in table.rows]


@pytest.mark.parametrize("name, row_name", ROWS, ids=[f"{name}: {row}" for name, row in ROWS])
def test_row_has_typed_verdict(name, row_name):
    table = TABLES[name]
    verdict = judge(table, cases_of(table))[row_name]
    typed = next(row.verdict for row in table.rows if row.name == row_name)
    assert verdict.status == typed
    assert typed in VERDICTS
    assert (verdict.because is None) == (typed in ("reproduced", "no printed value"))


def test_changed_number_changes_verdict():
    table = TABLES["moa-table3"]
    rows = tuple(replace(row, cells={"macs": "629M"}) if row.name.startswith("Base") else row for row in table.rows)
    verdict = judge(replace(table, rows=rows), cases_of(table))["Base: 8K8E128D"]
    assert verdict.status == "unexplained"
    assert verdict.because == "628,879,360 prints 628M, not 629M"


def test_common_vocabulary_of_table_2():
    table = TABLES["moa-table2"]
    cases, printing = cases_of(table), table.column("params").printing
    printed = {row.name: row.cells["params"]["params"] for row in table.rows}
    ranges = [implied_vocabulary(printed[name], printing, cases[name].ledger) for name in printed]
    common = common_vocabulary(ranges)
    for size in (common.low, common.high):
        for row in table.rows:
            config = preset(row.preset, {"vocab_size": size})
            form = ledger_of(config, resolve_lengths(config, {}))
            assert printing.text(form.params) == printed[row.name]


@pytest.mark.parametrize("edge, prints", [(-1, False), (0, True)])
def test_implied_vocabulary_ends(edge, prints):
    table = TABLES["moa-table1"]
    row = next(row for row in table.rows if row.name.startswith("Admin 60L"))
    printing = table.column("params").printing
    found = implied_vocabulary("256M", printing, cases_of(table)[row.name].ledger)
    for size in (found.low + edge, found.high - edge):
        form = ledger_of(preset(row.preset, {"vocab_size": size}), resolve_lengths(preset(row.preset), {}))
        assert (printing.text(form.params) == "256M") == prints


@pytest.mark.parametrize(
    "rule, number, text",
    [
        (Printing("M", "half-up", significant=3), 604_499_999, "604M"),
        (Printing("M", "half-up", significant=3), 604_500_000, "605M"),
        (Printing("M", "half-up", significant=3), 2_085_000_000, "2090M"),
        (Printing("M", "half-up", significant=3), 2_084_999_999, "2080M"),
        (Printing("M", "half-up", significant=3), 20_499_999, "20M"),
        (Printing("M", "truncate"), 841_999_999, "841M"),
        (Printing("G", "half-up", decimals=2), 6_545_000_000, "6.55G"),
        (Printing("G", "half-up", decimals=2), 6_544_999_999, "6.54G"),
        (Printing("k", "half-up", decimals=1), 1_050, "1.1k"),
        (Printing("B", "half-up", decimals=2), 8_025_000_000, "8.03B"),
        (Printing("G", "half-up", decimals=2), 50_000_000, "0.05G"),
    ],
)
def test_printing(rule, number, text):
    assert rule.text(number) == text
    assert number in rule.interval(text)


@pytest.mark.parametrize(
    "percent, text", [(Fraction(175, 2), "90%"), (Fraction(8749, 100), "85%"), (Fraction(800, 9), "90%"), (75, "75%")]
)
def test_printing_in_steps(percent, text):
    assert Printing("%", "half-up", multiple=5).text(percent) == text


def test_printing_follows_table_decimals():
    rule = Printing("G", "half-up", decimals=-1)
    assert rule.like("118.6G").text(118_649_999_999) == "118.6G"
    assert rule.like("525G").text(524_500_000_000) == "525G"
    assert rule.step("118.6G") == 10**8 and rule.step("525G") == 10**9
    assert Printing("G", "half-up", decimals=2).like("525G").text(524_500_000_000) == "524.50G"


def test_interval_is_exact():
    for rule, text in ((Printing("k", "truncate"), "7k"), (Printing("k", "half-up", significant=3), "1230k")):
        fits = rule.interval(text)
        assert {rule.text(n) for n in fits} == {text}
        assert rule.text(fits.start - 1) != text != rule.text(fits.stop)
    with pytest.raises(ValueError, match="^6.55G is not printed in M$"):
        Printing("M", "truncate").interval("6.55G")


def test_attention_and_ffn_conventions():
    paths = ("a.self_attn.q_proj", "a.cross_attn", "a.self_attn_norm", "a.feed_forward.fc1", "a.feed_forward_norm")
    entries = [Entry(path, "linear", {"T": 7}) for path in paths]
    assert [conventions.attention(entry) for entry in entries] == [1, 1, 0, 0, 0]
    assert [conventions.feed_forward(entry) for entry in entries] == [0, 0, 0, 1, 0]
    assert conventions.feed_forward(Entry("a.feed_forward", "activation", {"T": 7})) == 1
    assert [conventions.exact(Entry("", kind, {})) for kind in ("scores", "bias")] == [1, 0]


def test_vocabulary_conventions():
    embedding = Entry("x", "embedding", {"T": 7}, weight={"V": 29})
    tied = Entry("embedding", "embedding", {"T": 7})
    output = Entry("output_proj", "linear", {"T": 7, "V": 29})
    bias = Entry("output_proj", "bias", {"T": 7, "V": 29}, weight={"V": 29})
    inner = Entry("a.fc1", "linear", {"T": 7, "F": 19}, weight={"F": 19})
    entries = (embedding, tied, output, bias, inner)
    assert [conventions.vocabulary(entry) for entry in entries] == [1, 1, 1, 1, 0]
    assert [conventions.vocabulary_projection(entry) for entry in entries] == [0, 0, 1, 0, 0]
