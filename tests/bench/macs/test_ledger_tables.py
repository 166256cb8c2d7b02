"""The ledger of a preset, module by module and by kind: parts of one whole."""

from fractions import Fraction
from types import SimpleNamespace

import pytest

from headcount.bench.case import Case
from headcount.bench.counters.base import Count
from headcount.bench.macs.__main__ import main, parser, plan
from headcount.bench.macs.entries import sections
from headcount.bench.measure import Measurement
from headcount.formulas.ledger import MAC_KINDS
from tests.bench.output.reading import columns

T, D, FF, V, N = 7, 512, 2048, 32000, 6


@pytest.fixture(scope="module")
def tables():
    argv = ["--preset", "transformer-base", "--seq-len", str(T), "--counter", "closed-form"]
    return [[row.values for row in section.rows] for section in plan(parser().parse_args(argv)).sections]


def test_the_total_is_all_of_it_and_the_parts_sum_to_it(tables):
    # by hand: three attentions and two feed-forward blocks in a layer of each stack, and the vocabulary
    attention, feed_forward = 4 * T * D * D + 2 * T * T * D, 2 * T * D * FF
    macs = N * (3 * attention + 2 * feed_forward) + T * D * V
    for *parts, total in tables:
        assert (total["path"], total["macs"], total["share"]) == ("total", macs, 100)
        for column in ("macs", "params", "active_params"):
            assert sum(part[column] for part in parts) == total[column]
        assert sum(part["elements"] or 0 for part in parts) == total["elements"]
        assert sum(part["share"] or 0 for part in parts) == 100


def test_products_have_a_share_and_all_else_has_elements(tables):
    for *parts, total in tables:
        for part in parts:
            product = part.get("kind", part["path"]) in MAC_KINDS
            assert part["share"] == (Fraction(100 * part["macs"], total["macs"]) if product else None)
            assert (part["elements"] is None) == product


def test_what_is_wrong_stands_below_the_ledger_and_beside_a_counter_why_it_has_no_reading_or_was_moved():
    def reading(macs):
        return SimpleNamespace(macs=macs, tool="a tool", version="1", uncounted=None)

    case = Case.of("transformer-base", {}, {"src_len": T, "tgt_len": T})
    exact = case.ledger.macs
    counts = [
        Count("torch", exact, None, "no module", "cpu"),
        Count("fvcore", exact, reading(exact + 13), None, "meta", exact + 13, {"norm": 13}, None, "too large"),
        Count("ptflops-aten", exact, reading(exact), None, "cpu", exact),
    ]
    ledger, _, counters = sections("it", Measurement(case, 5, tuple(counts)), "it: ledger")
    said = f"it: the module has 5 parameters, the ledger {case.ledger.params:,}"
    assert ledger.below == ledger.rows[0].failures == [said]
    assert [row.notes for row in counters.rows] == [["no module"], ["too large"], []]
    assert columns(counters) == {
        "counter": ["torch", "fvcore", "ptflops-aten"],
        "device": ["cpu", "meta", "cpu"],
        "reported MACs": ["–", f"{exact + 13:,}", f"{exact:,}"],
        "error vs exact": ["–", "+13", "0"],
        "what it adds, by name": ["–", "norm +13", "nothing"],
        "explained by its rules": ["–", "yes", "yes"],
    }


def test_a_file_for_programs_has_no_row_that_sums_others(tmp_path):
    argv = ["--compare", "transformer-base", "moa-8K8E128D", "--counter", "closed-form", "--format", "csv"]
    assert main([*argv, "--out", f"{tmp_path}/"]) == 0
    for name in ("compare-params", "compare-block", "compare-kind"):
        rows = [line.partition(",")[0] for line in (tmp_path / f"{name}.csv").read_text().splitlines()]
        assert len(rows) > 3 and "total" not in rows
