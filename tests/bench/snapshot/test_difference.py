"""Differences of count snapshots, on terms of prime sizes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headcount.bench.contractions.audit import UNKNOWN, AuditLine
from headcount.bench.contractions.modules import ModuleRecord
from headcount.bench.counting.result import Count, Parameter
from headcount.bench.result import columns_of
from headcount.bench.snapshot import difference, file
from headcount.bench.snapshot.difference import ELEMENTWISE, MACS, PARAMS, equal, summary
from headcount.bench.snapshot.tables import COMPARED, LOCKED, LockedChange, LockedFact, tables
from headcount.formulas.ledger import WRITTEN_ELEMENTWISE, Entry, Ledger


def linear(path, m, i, j, times=1, kind="linear"):
    return Entry(path, kind, {"m": m, "i": i, "j": j}, times=times)


def count(*entries, elementwise=(), parameters=(), **how):
    """Return a count; one written elementwise is in its ledger where it is ``included``."""
    return Count(
        "a model", Ledger(entries), elementwise=Ledger(tuple(elementwise)), parameters=tuple(parameters), **how
    )


def changes(old, new, quantity=MACS):
    found = difference.changes(old, new)
    return [(c.path, c.what, c.sizes, *c.amounts) for c in found if c.quantity == quantity]


ONE = count(linear("proj", 7, 11, 13), linear("out", 7, 13, 5))


CHANGES = {
    "repetitions": (
        count(*[linear("proj", 7, 11, 13)] * 3),
        count(linear("proj", 7, 11, 13, 5)),
        [("proj", "changed", "3->5 x m=7 i=11 j=13", 3 * 1001, 5 * 1001)],
    ),
    "added and removed": (
        ONE,
        count(linear("proj", 7, 11, 13), linear("gate", 7, 11, 3)),
        [("gate", "added", "m=7 i=11 j=3", 0, 231), ("out", "removed", "m=7 i=13 j=5", 455, 0)],
    ),
    "other letters": (
        count(linear("proj", 7, 11, 13)),
        count(Entry("proj", "linear", {"b": 2, "m": 7, "i": 11, "j": 13})),
        [("proj", "changed", "m=7 i=11 j=13 -> b=2 m=7 i=11 j=13", 1001, 2002)],
    ),
    "paired in order of sizes": (
        count(linear("attn", 7, 6, 18, 3), linear("attn", 7, 6, 17)),
        count(linear("attn", 7, 6, 19)),
        [("attn", "changed", "m=7 i=6 j=17->19", 714, 798), ("attn", "removed", "3 x m=7 i=6 j=18", 2268, 0)],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_are_named(what):
    old, new, wanted = CHANGES[what]
    assert changes(old, new) == wanted


def test_equal_changes_of_layers_are_merged():
    def stack(width, layers):
        return count(*(linear(f"layers.{n}.proj", 7, 11, width) for n in layers))

    many = changes(stack(13, range(12)), stack(17, range(12)))
    assert many == [("layers.0-11.proj", "changed", "12 x m=7 i=11 j=13->17", 12 * 1001, 12 * 1309)]
    assert changes(stack(13, range(5)), stack(13, (0, 3))) == [
        ("layers.1-2,4.proj", "removed", "3 x m=7 i=11 j=13", 3003, 0)
    ]
    grid = count(*(linear(f"layers.{n}.experts.{e}", 7, 11, 13) for n in range(3) for e in range(2)))
    assert changes(grid, count())[0][:3] == ("layers.*.experts.*", "removed", "6 x m=7 i=11 j=13")
    one = count(*(linear(f"layers.{n}.proj", 7, 11, 17 if n == 2 else 13) for n in range(12)))
    assert [row[0] for row in changes(stack(13, range(12)), one)] == ["layers.2.proj"]


def test_parameters_differ_by_name_shape_trainable():
    weight, bias = Parameter("proj.weight", (13, 11)), Parameter("proj.bias", (13,))
    old = count(parameters=[weight, bias])
    wider = count(parameters=[Parameter("proj.weight", (17, 11)), bias])
    assert changes(old, wider, PARAMS) == [("proj.weight", "changed", "n0=13->17 n1=11", 143, 187)]
    frozen = count(parameters=[weight, Parameter("proj.bias", (13,), trainable=False)])
    assert not equal(old, frozen)
    assert [(c.path, c.kind, c.what) for c in difference.changes(old, frozen)] == [
        ("proj.bias", "frozen", "added"),
        ("proj.bias", "trained", "removed"),
    ]
    # a transposed matrix has the same MACs and is another parameter
    assert not equal(old, count(parameters=[Parameter("proj.weight", (11, 13)), bias]))


def test_elementwise_contractions_are_separate():
    written = Entry("mix", WRITTEN_ELEMENTWISE, {"m": 7, "i": 3})
    old, new = ONE, count(*ONE.ledger, elementwise=[written])
    assert old.macs == new.macs == 1001 + 455 and new.elementwise_macs == 21
    assert not equal(old, new)
    assert changes(old, new) == []
    assert changes(old, new, ELEMENTWISE) == [("mix", "added", "m=7 i=3", 0, 21)]
    included = count(*ONE.ledger, written, elementwise=[written], included=True)
    assert included.macs == 1456 + 21
    assert changes(old, included) == [("mix", "added", "m=7 i=3", 0, 21)]


def test_unsupported_operation_is_a_difference():
    assert not equal(ONE, count(*ONE.ledger, audit=(AuditLine("mylib.op", UNKNOWN, "mix", 1, ((7, 3),)),)))


def test_uncalled_modules_are_a_difference_where_both_are_known():
    ran, skipped = count(*ONE.ledger, uncalled=()), count(*ONE.ledger, uncalled=("vision",))
    assert not equal(ran, skipped) and equal(ONE, skipped) and equal(skipped, skipped)
    (_, how) = tables(skipped, ran, LOCKED)
    assert how.rows == [LockedFact(None, "did not run", "vision", None)]


def test_inputs_and_versions_are_no_difference():
    other = count(*ONE.ledger, inputs=("0: 7x11 float32",), versions={"torch": "2.99"})
    assert equal(ONE, other)
    assert summary(ONE, other) == "1,456 MACs (none changed), 0 parameters (none changed)"


UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline: the time of an example depends on the machine."""
TERMS = st.lists(
    st.builds(linear, st.sampled_from(["a", "b.0", "b.1", "b.2.c"]), *(st.sampled_from([2, 3, 5]),) * 3, st.just(1)),
    max_size=7,
)


@UNTIMED
@given(TERMS, TERMS)
def test_differences_add_up(left, right):
    old, new = count(*left), count(*right)
    for sides, before, after, sign in ((LOCKED, "locked", "counted", 1), (COMPARED, "a", "b", -1)):
        rows = [vars(row) for row in tables(old, new, sides)[0].rows]
        assert (rows[-1][before], rows[-1][after]) == (old.macs, new.macs)
        assert rows[-1]["difference"] == sign * (new.macs - old.macs)
        for key in (before, after, "difference"):
            assert sum(row[key] for row in rows[:-1]) == rows[-1][key]
    assert equal(old, new) == (sorted(map(str, left)) == sorted(map(str, right)))
    assert equal(old, new) == (len(rows) == 2)


@UNTIMED
@given(TERMS)
def test_file_roundtrip_in_any_order(terms):
    one = count(*terms, inputs=("x: 7x11 float32",), versions={"torch": "2.13.0"})
    (again,) = file.parse(file.text(one), "macs.lock")
    assert equal(one, again) and again.macs == one.macs
    assert file.text(one) == file.text(count(*reversed(terms), inputs=one.inputs, versions=one.versions))
    assert file.text(again) == file.text(one)


def test_narrow_table_keeps_sizes_before_locked_numbers():
    # columns of the largest priority are hidden first
    priority = {column.key: column.priority for column in columns_of(LockedChange)}
    assert priority["sizes"] < priority["locked"] < priority["counted"] < priority["kind"]


def routed(*rows, d=5, **how):
    """Return the count of a mixture whose values give expert n ``rows[n]`` tokens, of its linear layer and gate."""
    products = [linear(f"experts.{n}.proj", m, d, 7) for n, m in enumerate(rows)]
    gates = [Entry("", WRITTEN_ELEMENTWISE, {"m": 3, "i": m}) for m in rows]
    modules = (ModuleRecord("", "Mixture", params=100, used_params=100, active_params=None),)
    return count(*products, elementwise=gates, modules=modules, **how)


def test_tokens_that_values_divide_are_no_difference():
    """Other weights give each expert other tokens; all tokens, and the sizes of experts, are the same."""
    locked = count(*routed(4, 9, 2).ledger, elementwise=routed(4, 9, 2).elementwise)
    assert equal(locked, routed(1, 5, 9)) and changes(locked, routed(1, 5, 9)) == []
    assert not equal(locked, routed(1, 5, 8)) and not equal(locked, routed(4, 9, 2, d=6))
    # one that divides no tokens by values differs
    assert not equal(routed(4, 9, 2), locked.with_values(ledger=routed(1, 5, 9).ledger))
