"""A ledger as rows: equal layers are one, deep modules end at a depth, sizes have their letters."""

import pytest

from headcount.bench.contractions.summary import cut, folded, merged, sizes
from headcount.formulas.ledger import Entry


@pytest.mark.parametrize(
    "path, shown",
    [("layers.0.attn", "layers.*.attn"), ("0.1.2x", "*.*.2x"), ("h11.x", "h11.x"), ("a.7", "a.*"), ("", "")],
)
def test_an_index_is_a_star(path, shown):
    assert folded(path) == shown


@pytest.mark.parametrize("depth, shown", [(None, "a.b.c"), (1, "a"), (2, "a.b"), (3, "a.b.c"), (5, "a.b.c")])
def test_a_path_ends_at_its_depth(depth, shown):
    assert cut("a.b.c", depth) == shown


def entry(path, times=1, kind="linear", **dims):
    return Entry(path, kind, dims=dims, times=times)


def test_sizes_have_their_letters_and_their_repetitions():
    assert sizes(entry("x", T=7, i=11, j=13)) == "T=7 i=11 j=13"
    assert sizes(entry("x", times=3, T=7, **{"2": 2})) == "3 x T=7 2"


def test_equal_layers_are_one_row_and_others_are_not():
    found = merged([entry("l.0.q", T=7), entry("l.1.q", times=2, T=7), entry("l.2.q", T=5), entry("l.3.k", T=7)], None)
    assert [(one.path, one.times, one.dims["T"]) for one in found] == [
        ("l.*.q", 3, 7),
        ("l.*.q", 1, 5),
        ("l.*.k", 1, 7),
    ]


def test_at_a_depth_every_kind_has_its_sum():
    found = merged([entry("l.0.q", times=2, T=7, i=3), entry("l.1.k", T=5), entry("l.1.k", kind="scores", T=11)], 2)
    assert [(one.path, one.kind, one.times, one.dims) for one in found] == [
        ("l.*", "linear", 1, {"i": 2 * 7 * 3 + 5}),
        ("l.*", "scores", 1, {"i": 11}),
    ]
