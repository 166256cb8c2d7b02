"""Which sizes a comparison moves, and what it says of them."""

from types import SimpleNamespace

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
def test_a_size_that_cannot_be_built_is_no_exception(first, turns, notes, monkeypatch):
    monkeypatch.setattr(Begins, "first", first)
    rows = list(compare._rows_of(Begins(None, None, "K", "A", EXACT), (), None))
    assert [(row.values["below"], row.values["above"]) for row in rows] == turns
    assert [row.notes for row in rows] == [notes] * len(turns)


def side(*letters):
    return SimpleNamespace(letters=lambda: letters, uneven=tuple, name="-", lengths={})


@pytest.mark.parametrize(
    ("a", "b", "moved"),
    [
        (side("T", "K"), side("h", "T"), [("T", "AB"), ("K", "A"), ("h", "B")]),
        (side("T", "K"), side("h"), [("K", "A"), ("h", "B")]),
        (side("K"), side("T"), [("K", "A")]),
    ],
)
def test_lengths_are_moved_where_both_have_them_and_other_letters_of_each(a, b, moved, monkeypatch):
    monkeypatch.setattr(compare, "_rows_of", lambda change, *rest: [(change.letter, change.which)])
    assert list(compare._turn_rows(a, b, [EXACT], (), None)) == moved


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (side("T"), side("T"), ""),
        (side("T", "K"), side("E", "K"), " Changed in A or in B alone, in all layers, everything else fixed: K, E."),
        (
            side("T", "h"),
            side("K"),
            " Changed in A or in B alone, in all layers, everything else fixed: h, K"
            " (g changes with h where every head has its own keys and values).",
        ),
    ],
)
def test_the_note_names_what_is_moved_and_what_goes_with_it(a, b, said):
    section = compare._turns(a, b, [], (), None)
    assert section.table.notes_above == [f"T is every input length at once.{said}"]
