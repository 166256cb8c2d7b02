"""Verdicts on made-up tables with small numbers."""

from dataclasses import dataclass

import pytest

from headcount.formulas.ledger import Entry, Ledger, ledger
from headcount.formulas.published.figures import QUANTITIES, Figure, Row
from headcount.formulas.published.rounding import Interval
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import adjustments, implied_vocabulary, judge, of_row


@dataclass(frozen=True)
class Case:
    ledger: Ledger
    ideal_ledger: Ledger | None = None
    causal_macs: int | None = None
    tokens: int = 1
    samples: int = 1
    target_tokens: int | None = None
    length: int | None = None


def figure(quantity, **printing):
    known = QUANTITIES[quantity]
    return Figure(name=quantity, head=known.head, value=known.value, quantity=quantity, **printing)


COLUMNS = {
    "macs": figure("macs"),
    "params": figure("params"),
    "activated": figure("activated", multiple=5),
}


def verdict(printed, case, judged=("macs",), **row):
    """Return the verdict on one row, and the arithmetic."""
    own = Row(name="a", target="none", printed=printed, **row)
    columns = [COLUMNS[name] if isinstance(name, str) else name for name in judged]
    texts = dict.fromkeys(("title", "paper", "source", "place"), "-")
    table = PublishedTable(name="made-up", order=1, columns=columns, rows=[own], **texts)
    status, _, because = of_row(list(judge(table, lambda row, changed: case)))
    return status, because


FORM = ledger(
    Entry("x", "linear", {"T": 7000}, weight={"d_m": 3000}),
    Entry("x", "bias", {"T": 1000}, weight={"d_m": 2000}),
    Entry("x", "softmax", {"T": 2500}),
    Entry("router.proj", "linear", {"E": 0}),
)


def test_typed_verdict_has_no_influence():
    tried = (
        "7,000 prints 7k, not 9k; the rule gives 0.7778 times the printed number; no rule tried prints it: "
        "exact MACs 7.00k, "
    )
    found, because = verdict({"macs": "9k"}, Case(FORM), verdicts={"macs": "explained"})
    assert found == "no rule found" and because.startswith(tried)
    assert verdict({}, Case(FORM)) == ("no printed value", "")


def test_two_columns_give_worse_status():
    # of 4 heads each token uses 3
    released = ledger(Entry("x", "scores", {"h": 4, "T": 2000}, weight={"d_m": 5000}))
    case = Case(released, ledger(Entry("x", "scores", {"k": 3, "T": 2000})))
    found, because = verdict({"macs": "9k", "params": "5k", "activated": "90%"}, case, COLUMNS, note="A note")
    assert found == "no rule found"
    assert because.startswith("8,000 prints 8k, not 9k; the rule gives 0.8889 times the printed number; ")
    assert because.endswith("activated 75.00%; A note") and "; A note; A note; 75 prints 75%, not 90%; " in because
    assert verdict({"macs": "8k", "params": "5k", "activated": "75%"}, case, COLUMNS) == ("reproduced", "")


def test_explanation_shows_sum():
    adjust = [
        {"times": 1, "select": "ffn_biases"},
        {"times": -2, "select": "exact", "dims": {"T": 500, "E": 1}},
        {"times": 3, "select": "router"},
    ]
    form = FORM + ledger(Entry("y.feed_forward", "bias", {"T": 501}))
    because = (
        "7,000 prints 7k, not 6k; 7,000 + 501 (ffn biases) - 1,002 (exact with T = 500, E = 1) + 0 (router) = 6,499 "
        "prints 6k"
    )
    found = verdict({"macs": "6k"}, Case(form), explain={"macs": {"adjust": adjust}})
    assert found == ("explained", because)


def test_parameters_are_adjusted_by_parameters():
    form = ledger(
        Entry("x", "linear", {"T": 7000}, weight={"d_m": 3000}),
        Entry("p", "elementwise", {"T": 11}, weight={"T": 1700}, trainable=False),
    )
    explain = {name: {"adjust": [{"times": -1, "select": "frozen"}]} for name in ("macs", "params")}
    found = verdict({"macs": "7k", "params": "3k"}, Case(form), ("macs", "params"), explain=explain)
    assert found == ("explained", "4,700 prints 5k, not 3k; 4,700 - 1,700 (frozen) = 3,000 prints 3k")
    assert adjustments(Row(name="a", explain=explain), COLUMNS["macs"], Case(form)) == [("frozen", -11)]


@pytest.mark.parametrize("printed, low, high", [("7k", 3492, 3991), ("0.9k", 442, 491)])
def test_implied_vocabulary(printed, low, high):
    # 2 V + 16 parameters: 2 * 3492 + 16 = 7000 is the first above 6999, 2 * 3991 + 16 = 7998 the last below 8000
    form = ledger(
        Entry("e", "embedding", {"T": 7}, weight={"V": 29, "d_m": 2}),
        Entry("x", "linear", {"T": 7}, weight={"d_m": 16}),
    )
    assert implied_vocabulary(printed, figure("params", truncated=True), form) == Interval(low, high)


@pytest.mark.parametrize(
    "once, status", [("9.05k", "explained"), ("9.04k", "no rule found"), ("9.15k", "no rule found")]
)
def test_second_rounding(once, status):
    # 7,000 + 2,047 rounds to 9.05, and 9.05 rounds to 9.1
    form = FORM + ledger(Entry("x", "norm", {"T": 2047}))
    explain = {"macs": {"adjust": [{"times": 1, "select": "norms"}], "rounded_from": once}}
    found, reason = verdict({"macs": "9.1k"}, Case(form), [figure("macs")], explain=explain)
    assert found == status
    if status == "explained":
        because = "7,000 + 2,047 (norms) = 9,047 prints 9.05k, which rounded again prints 9.1k"
        assert reason == f"7,000 prints 7.0k, not 9.1k; {because}"
