"""Verdicts on made-up tables with small numbers."""

from dataclasses import dataclass, replace

import pytest

from headcount.formulas.ledger import Entry, Ledger, ledger
from headcount.formulas.published import verdicts
from headcount.formulas.published.columns import Adjustment, Column, Row
from headcount.formulas.published.rounding import Printing
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import VocabularyRange, implied_vocabulary, judge


@dataclass(frozen=True)
class Case:
    ledger: Ledger
    ideal_ledger: Ledger | None = None


def row(name, macs=None, *, params=None, activated=None, verdict="reproduced", adjust=(), note=None):
    cells = {"macs": macs, "activated": activated, "params": {"params": params} if params else {}}
    return Row(name, "none", verdict, cells, adjust, note)


def table(*rows, judged=("macs",)):
    rule = Printing("k", "truncate")
    printings = {"macs": rule, "params": rule, "activated": Printing("%", "half-up", multiple=5)}
    columns = tuple(Column(quantity=quantity, printing=printings[quantity]) for quantity in judged)
    return PublishedTable("made-up", "title", "paper", 1, "source", "place", columns, rows)


FORM = ledger(
    Entry("x", "linear", {"T": 7000}, weight={"d_m": 3000}),
    Entry("x", "bias", {"T": 1000}, weight={"d_m": 2000}),
    Entry("x", "softmax", {"T": 2500}),
    Entry("router.proj", "linear", {"E": 0}),
)


def test_typed_verdict_has_no_influence():
    rows = (row("a", "9k", verdict="reproduced"), row("b"))
    found = judge(table(*rows), {"a": Case(FORM), "b": Case(FORM)})
    assert found["a"] == verdicts.Verdict("unexplained", 7000, "7,000 prints 7k, not 9k")
    assert found["b"] == verdicts.Verdict("no printed value", 7000)


def test_two_columns_give_worse_status():
    # of 4 heads each token uses 3
    released = ledger(Entry("x", "scores", {"h": 4, "T": 2000}, weight={"d_m": 5000}))
    ideal = ledger(Entry("x", "scores", {"k": 3, "T": 2000}))
    only = row("a", "9k", params="5k", activated="90%", note="A note.")
    found = judge(table(only, judged=("macs", "params", "activated")), {"a": Case(released, ideal)})["a"]
    assert found.status == "unexplained"
    assert found.because == "8,000 prints 8k, not 9k. A note.; 75.00 prints 75%, not 90%. A note."
    fitting = replace(only, cells={**only.cells, "macs": "8k", "activated": "75%"})
    found = judge(table(fitting, judged=("macs", "params", "activated")), {"a": Case(released, ideal)})["a"]
    assert found == verdicts.Verdict("reproduced", 8000, None)


def test_explanation_shows_sum():
    adjust = (Adjustment(1, "ffn_biases", {}), Adjustment(-2, "exact", {"T": 500, "E": 1}), Adjustment(3, "router", {}))
    only = row("a", "6k", adjust=adjust)
    form = FORM + ledger(Entry("y.feed_forward", "bias", {"T": 1001}))
    because = (
        "7,000 prints 7k, not 6k; 7,000 + 1,001 (ffn biases) - 1,002 (exact with T = 500, E = 1) + 0 (router) = 6,999 "
        "prints 6k"
    )
    assert judge(table(only), {"a": Case(form)})["a"] == verdicts.Verdict("explained", 7000, because)


def test_parameters_are_adjusted_by_parameters():
    form = ledger(
        Entry("x", "linear", {"T": 7000}, weight={"d_m": 3000}),
        Entry("p", "elementwise", {"T": 11}, weight={"T": 1700}, trainable=False),
    )
    only = row("a", "7k", params="3k", adjust=(Adjustment(-1, "frozen", {}, of="params"),))
    found = judge(table(only, judged=("macs", "params")), {"a": Case(form)})["a"]
    assert found.status == "explained"
    assert found.because == "4,700 prints 4k, not 3k; 4,700 - 1,700 (frozen) = 3,000 prints 3k"
    assert table().column("macs").adjusted(Adjustment(1, "frozen"), Case(form)) == 11


@pytest.mark.parametrize("printed, low, high", [("7k", 3493, 3992), ("0k", 1, 492)])
def test_implied_vocabulary(printed, low, high):
    # 2 V + 15 parameters: 2 * 3493 + 15 = 7001 is the first above 6999, 2 * 3992 + 15 = 7999 the last below 8000
    form = ledger(
        Entry("e", "embedding", {"T": 7}, weight={"V": 29, "d_m": 2}),
        Entry("x", "linear", {"T": 7}, weight={"d_m": 15}),
    )
    assert implied_vocabulary(printed, Printing("k", "truncate"), form) == VocabularyRange(low, high)


@pytest.mark.parametrize("once, status", [("9.05k", "explained"), ("9.04k", "unexplained"), ("9.15k", "unexplained")])
def test_second_rounding(once, status):
    # 7,000 + 2,047 rounds to 9.05, and 9.05 rounds to 9.1
    form = FORM + ledger(Entry("x", "norm", {"T": 2047}))
    only = replace(row("a", "9.1k", adjust=(Adjustment(1, "norms"),)), rounded_from={"macs": once})
    column = Column(quantity="macs", printing=Printing("k", "half-up", decimals=-1))
    found = judge(replace(table(only), columns=(column,)), {"a": Case(form)})["a"]
    assert found.status == status
    if status == "explained":
        because = "7,000 + 2,047 (norms) = 9,047 prints 9.05k, which rounded again prints 9.1k"
        assert found.because == f"7,000 prints 7.0k, not 9.1k; {because}"
