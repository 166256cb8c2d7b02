"""A ledger's accounts are sums over its entries; letters are those of the legend."""

from fractions import Fraction

import pytest
import sympy

from headcount.formulas.ledger import MAC_KINDS, OTHER_KINDS, STORED_KINDS, Entry, at, divide, ledger
from headcount.formulas.symbols import LEGEND, by_letter, symbol

ROUTED = Entry(
    "a.q_proj", "expert_linear", {"B": 2, "T": 7, "K": 3, "d_m": 13, "D": 5}, weight={"E": 11, "d_m": 13, "D": 5}
)
DENSE = Entry("a.k_proj", "linear", {"B": 2, "S": 17, "d_m": 13, "D": 5}, weight={"d_m": 13, "D": 5})
BIAS = Entry("a.k_proj", "bias", {"B": 2, "S": 17, "D": 5}, weight={"D": 5})
FROZEN = Entry("positions", "embedding", {"T": 7, "d_m": 13}, weight={"P": 19, "d_m": 13}, trainable=False)


def test_only_contractions_have_macs():
    for kind in MAC_KINDS:
        assert Entry("", kind, {"T": 7}).macs == 7
    for kind in (*OTHER_KINDS, *STORED_KINDS):
        assert Entry("", kind, {"T": 7}).macs == 0
        assert Entry("", kind, {"T": 7}).size == 7


def test_group_keeps_order_and_sum():
    both = ledger(ROUTED, DENSE, BIAS, ROUTED)
    assert both.group(lambda e: e.kind) == {
        "expert_linear": 2 * ROUTED.macs,
        "linear": DENSE.macs,
        "bias": 0,
    }
    assert list(both.group(lambda e: e.kind)) == ["expert_linear", "linear", "bias"]
    assert both.group(lambda e: e.path, "params") == {"a.q_proj": 2 * 11 * 13 * 5, "a.k_proj": 13 * 5 + 5}


def test_path_of_the_root_and_of_a_module_itself():
    paths = {("", ""): "", ("layers", ""): "layers", ("", "proj"): "proj", ("layers.0", "proj"): "layers.0.proj"}
    assert {pair: at(*pair) for pair in paths} == paths


def test_division_never_rounds():
    assert divide(12, 4) == 3 and type(divide(12, 4)) is int
    assert divide(7, 2) == Fraction(7, 2)
    assert divide(Fraction(7, 2), Fraction(1, 2)) == 7
    a, b = sympy.symbols("a b")
    assert divide(a, b) == a / b
    assert divide(a, 2) == a / 2 and divide(2, b) == 2 / b


def test_legend_letters_are_unique():
    letters = [symbol.letter for symbol in LEGEND]
    assert len(letters) == len(set(letters))
    assert by_letter("K").word == "top_k"
    with pytest.raises(KeyError, match="Q"):
        by_letter("Q")


def two_modules():
    weight = {"i": 5, "j": 7}
    return ledger(
        Entry("layers.*.<b>", "linear", {"T": 3, **weight}, times=2, weight=weight),
        Entry("layers.*", "softmax", {"T": 3, "j": 7}, times=2),
        Entry("", "scores", {"T": 3, "S": 11}),
    )


def test_ledger_prints_a_tree_with_sums():
    lines = [line.split() for line in str(two_modules()).splitlines()]
    linear, softmax, params = 2 * 3 * 5 * 7, 2 * 3 * 7, 2 * 5 * 7
    assert lines == [
        ["module", "MACs", "elements", "params"],
        ["(model)", str(linear + 3 * 11), str(softmax), str(params)],
        ["layers", str(linear), str(softmax), str(params)],
        ["*", str(linear), str(softmax), str(params)],
        ["<b>", str(linear), "–", str(params)],
        ["(linear)", "2", "x", "T=3", "i=5", "j=7", str(linear), "–", str(params)],
        ["(softmax)", "2", "x", "T=3", "j=7", "–", str(softmax), "–"],
        ["(scores)", "T=3", "S=11", str(3 * 11), "–", "–"],
    ]
    _, *rows = str(two_modules()).splitlines()
    assert len({len(row) for row in rows}) == 1
    assert [len(row) - len(row.lstrip()) for row in rows] == [0, 2, 4, 6, 8, 6, 2]


def test_ledger_has_html_and_a_data_frame():
    page = two_modules()._repr_html_()
    assert "&lt;b&gt;" in page and "<b>" not in page
    frame = two_modules().to_dataframe()
    assert list(frame["path"]) == ["layers.*.<b>", "layers.*", ""]
    assert list(frame["macs"]) == [210, 0, 33]
    assert list(frame["params"]) == [70, 0, 0] and list(frame["size"]) == [210, 42, 33]


def test_ledger_of_symbols_prints_formulas():
    T, d = symbol("T"), symbol("d_m")
    lines = str(ledger(Entry("", "linear", {"T": T, "d_m": d, "2": 2}, times=d))).splitlines()
    assert lines[1].split() == ["(model)", "2*T*d_m^2", "–", "–"]
    assert lines[2].split() == ["(linear)", "d_m", "x", "T", "d_m", "2", "2*T*d_m^2", "–", "–"]
