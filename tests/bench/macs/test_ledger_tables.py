"""The ledger of a preset, module by module and by kind: parts of one whole."""

import pytest

from headcount.bench.macs.__main__ import parser, plan

T, D, FF, V, N = 7, 512, 2048, 32000, 6


@pytest.fixture(scope="module")
def tables():
    argv = ["--preset", "transformer-base", "--seq-len", str(T), "--counter", "closed-form"]
    return [[row.values for row in section.rows] for section in plan(parser().parse_args(argv)).sections]


def test_ledger_total_matches_hand_formula(tables):
    # by hand: three attentions and two feed-forward blocks in a layer of each stack, and the vocabulary
    attention, feed_forward = 4 * T * D * D + 2 * T * T * D, 2 * T * D * FF
    macs = N * (3 * attention + 2 * feed_forward) + T * D * V
    for *parts, total in tables:
        assert (total["path"], total["macs"], total["share"]) == ("total", macs, 100)
        for column in ("macs", "params", "active_params"):
            assert sum(part[column] for part in parts) == total[column]
        assert sum(part["elements"] or 0 for part in parts) == total["elements"]
        assert sum(part["share"] or 0 for part in parts) == 100
