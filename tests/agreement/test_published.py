"""Every printed row follows its table's rule or has the verdict of the data file."""

from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.bench.case import ledger_of, resolve_lengths
from headcount.bench.macs.published import Case
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry
from headcount.formulas.published.figures import Figure
from headcount.formulas.published.rounding import Interval, fixed
from headcount.formulas.published.tables import load_tables
from headcount.formulas.published.verdicts import common_vocabulary, implied_vocabulary, judge
from headcount.models.configs.presets import preset


def case_of(row, changed):
    return Case.of(row.target, {**row.set, **changed})


TABLES = load_tables()


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_typed_verdicts(name):
    for cell in judge(TABLES[name], case_of):
        assert cell.verdict == cell.expected, (name, cell.row.name)
        assert (not cell.because) == (cell.verdict == "reproduced")


def test_changed_number_changes_verdict():
    table = TABLES["moa-table3"]
    base, *others = table.rows

    def judged(printed):
        cells = judge(replace(table, rows=[replace(base, printed={"macs": printed}), *others]), case_of)
        return [cell for cell in cells if cell.figure.quantity == "macs"]

    first, *_ = judged("630M")
    assert first.verdict == "no rule found" and first.difference == "628,879,360 prints 628M, not 630M"
    assert first.because.startswith("the rule gives 0.9982 times the printed number; ")
    # one rounded number, and no digits of the column are cut off
    first, *others = judged("629M")
    assert first.verdict == "reproduced" and not first.figure.truncated
    assert [cell.printed for cell in others if cell.because.endswith(" cut off")] == ["841M", "524M", "654M"]


def test_common_vocabulary_of_table_2():
    table = TABLES["moa-table2"]
    column = table.column("params")
    common = common_vocabulary(
        [implied_vocabulary(row.printed["params"], column, Case.of(row.target).ledger) for row in table.rows]
    )
    for size in (common.low, common.high):
        for row in table.rows:
            config = preset(row.target, {"vocab_size": size})
            form = ledger_of(config, resolve_lengths(config, {}))
            assert column.text(form.params, row.printed["params"]) == row.printed["params"]


@pytest.mark.parametrize(
    "rule, number, text",
    [
        ({"significant": 3}, 604_499_999, "604M"),
        ({"significant": 3}, 604_500_000, "605M"),
        ({"significant": 3}, 2_085_000_000, "2090M"),
        ({"significant": 3}, 2_084_999_999, "2080M"),
        ({"significant": 3}, 20_499_999, "20M"),
        ({"truncated": True}, 841_999_999, "841M"),
        ({"trailing_zeros": True}, 12_845, "12850"),
        ({}, 6_545_000_000, "6.55G"),
        ({}, 6_544_999_999, "6.54G"),
        ({}, 1_050, "1.1k"),
        ({}, 8_025_000_000, "8.03B"),
        ({}, 50_000_000, "0.05G"),
        ({}, 118_649_999_999, "118.6G"),
        ({}, 524_500_000_000, "525G"),
        ({"multiple": 5}, Fraction(175, 2), "90%"),
        ({"multiple": 5}, Fraction(8749, 100), "85%"),
        ({"multiple": 5}, Fraction(800, 9), "90%"),
        ({"multiple": 5}, 75, "75%"),
    ],
)
def test_printing(rule, number, text):
    figure = Figure(name="x", head="x", value="x", **rule)
    assert figure.text(number, text) == text and figure.prints(Interval(number, number), text)
    fits = figure.interval(text)
    assert fits.low <= number < fits.high
    edges = [Interval(edge, edge) for edge in (fits.low, fits.high)]
    assert [figure.prints(edge, text) for edge in edges] == [True, False]
    assert [figure.text(edge.low, text) == text for edge in edges] == [True, False]
    assert figure.text(fits.low - Fraction(1, 10**6), text) != text


def test_text_has_decimals_of_like():
    assert Figure(name="x", head="x", value="x").text(524_500_000_000, "6.55G") == "524.50G"
    assert [fixed(Fraction(value, 2), 0) for value in (-5, 5, 2469)] == ["-2", "3", "1,235"]


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
