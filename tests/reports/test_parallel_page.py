"""The page "Models on many devices": rows against hand-written formulas, and its verdicts."""

import re
from fractions import Fraction

import pytest

from headcount.reports.blocks import parallel
from headcount.reports.facts import Facts
from tests.reports.pipe_tables import rows_of

FACTS = Facts()


def test_dispatch_sends_less_where_ratio_is_below_one():
    rows = rows_of(parallel.dispatch(FACTS)["table"])
    assert len(rows) == 8
    for row in rows:
        K, E, D = map(int, re.fullmatch(r"(\d+)K(\d+)E(\d+)D", row["size"]).groups())
        less = [e for e in range(2, E + 1) if E % e == 0 and Fraction(K, e) + Fraction(D, 512) < 1]
        assert row["less at e ="] == (", ".join(map(str, less)) or "none")


def test_slowest_rank_of_moh():
    rows = rows_of(parallel.heads(FACTS)["table"])
    assert [(row["heads of a token"], row["key/value heads"]) for row in rows] == [("4", "1")] * 3 + [("3", "2")]
    # 32 layers, 2,048 tokens, two products of heads of width 128
    products = [int(row[parallel.PRODUCTS].replace(",", "")) for row in rows]
    assert products == [32 * 2 * heads * 2048**2 * 128 for heads in (4, 4, 4, 3)]


@pytest.mark.parametrize(
    "part, sentences",
    [
        (parallel.dispatch, ["formula"]),
        (parallel.heads, ["contiguous", "dealt", "nothing"]),
        (parallel.causal_blocks, ["holds"]),
    ],
)
def test_no_sentence_fails(part, sentences):
    found = part(FACTS)
    assert {found[name] for name in sentences} == {"holds"}
