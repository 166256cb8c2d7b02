"""A ledger as rows: equal layers are one, deep modules end at a depth, sizes have their letters."""

from headcount.bench.contractions.summary import merged
from headcount.formulas.ledger import Entry


def entry(path, times=1, kind="linear", **dims):
    return Entry(path, kind, dims=dims, times=times)


def test_equal_layers_are_merged():
    found = merged([entry("l.0.q", T=7), entry("l.1.q", times=2, T=7), entry("l.2.q", T=5), entry("l.3.k", T=7)], None)
    assert [(one.path, one.times, one.dims["T"]) for one in found] == [
        ("l.*.q", 3, 7),
        ("l.*.q", 1, 5),
        ("l.*.k", 1, 7),
    ]


def test_depth_sums_kinds():
    found = merged([entry("l.0.q", times=2, T=7, i=3), entry("l.1.k", T=5), entry("l.1.k", kind="scores", T=11)], 2)
    assert [(one.path, one.kind, one.times, one.dims) for one in found] == [
        ("l.*", "linear", 1, {"i": 2 * 7 * 3 + 5}),
        ("l.*", "scores", 1, {"i": 11}),
    ]
