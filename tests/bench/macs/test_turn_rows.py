"""Which sizes a comparison moves, and what it says of them."""

import pytest

from headcount.bench.macs import compare
from headcount.bench.macs.compare import EXACT, Change


class Begins(Change):
    """7 less than the letter and none with 0, from ``first`` on."""

    first = 0

    def refusal(self, size):
        return None if size >= self.first else "no"

    def less(self, size):
        return 5 if size == 0 else size - 7


@pytest.mark.parametrize(
    ("first", "turns", "notes"), [(0, [(0, 1), (6, 7), (7, 8)], ["A - B is 5 at K = 0"]), (1, [(6, 7), (7, 8)], [])]
)
def test_invalid_size_is_no_exception(first, turns, notes, monkeypatch):
    monkeypatch.setattr(Begins, "first", first)
    rows = list(compare._rows_of(Begins(None, None, "K", "A", EXACT), (), None))
    assert [(row.values["below"], row.values["above"]) for row in rows] == turns
    assert [row.notes for row in rows] == [notes] * len(turns)
