"""``headcount derive`` without points: sizes from the function's keywords, or from the inputs that may vary."""

import json

import pytest
import sympy

from headcount.bench.derive.__main__ import main
from headcount.formulas.symbols import symbol
from tests.bench.derive.derive_command import is_equal, run_derive

USER = """
import math
from torch import einsum, nn, where, zeros, zeros_like


def fixed():
    return nn.TransformerEncoderLayer(12, 3, 20, batch_first=True), (zeros(1, 7, 12),)


def whole():
    return nn.Bilinear(4, 5, 6), (zeros(4), zeros(5))


def sized(T=24, d=12, h=3, seed=0, name="x"):
    return nn.TransformerEncoderLayer(d, h, 4 * d), (zeros(T, 1, d),)


def divisible(T, d):
    assert d % 8 == 0, "8 must divide d"
    return nn.Linear(d, d), (zeros(T, d),)


class Deepest(nn.Module):
    # runs the first k of 16 layers

    def __init__(self, d, k):
        super().__init__()
        self.layers, self.k = nn.ModuleList(nn.Linear(d, d) for _ in range(16)), k

    def forward(self, x):
        assert self.k <= 16
        for layer in self.layers[: self.k]:
            x = layer(x)
        return x


class Chosen(nn.Module):
    # each row is multiplied by the k weights of 16 that it selects

    def __init__(self, d, k):
        super().__init__()
        self.gate, self.weight, self.k = nn.Linear(d, 16), nn.Parameter(zeros(16, d)), k

    def forward(self, x):
        return einsum("td,tkd->tk", x, self.weight[self.gate(x).topk(self.k).indices])


class Looped(nn.Module):
    # each of k of e experts multiplies the tokens that chose it

    def __init__(self, d, e, k):
        super().__init__()
        self.gate, self.weight, self.e, self.k = nn.Linear(d, e), nn.Parameter(zeros(e, d, d)), e, k

    def forward(self, x):
        chosen = self.gate(x).topk(self.k).indices
        out = zeros_like(x)
        for i in range(self.e):
            row = where(chosen == i)[0]
            out = out.index_add(0, row, x[row] @ self.weight[i])
        return out


def looped(T, d, e, k):
    return Looped(d, e, k), (zeros(T, d),)


class Heads(Looped):
    # the same for the queries of h heads, which must divide the width

    def __init__(self, d, h, e, k):
        super().__init__(d, e, k)
        self.h, self.scale = h, 1 / math.sqrt(d)

    def forward(self, x):
        q = super().forward(x).view(len(x), self.h, -1).transpose(0, 1) * self.scale
        return q @ q.transpose(-2, -1)


def heads(T=64, d=512, h=8, e=8, k=2):
    return Heads(d, h, e, k), (zeros(T, d),)


def limited(kind, T=8, d=12, k=4):
    return {"deepest": Deepest, "chosen": Chosen}[kind](d, k), (zeros(T, d),)


class Net(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)

    def forward(self, image):
        return self.conv(image)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(USER)
    monkeypatch.chdir(tmp_path)


def total(table, names):
    """Return the polynomial of the last row."""
    return sympy.sympify(table["rows"][-1]["text"], locals={name: symbol(name) for name in names})


@pytest.mark.parametrize("kind, names", [("deepest", "k"), ("chosen", "Tdk")])
def test_points_stay_where_the_module_can_be_built(kind, names):
    _, table = run_derive(",".join(names), "mine.py:limited", "--set", f"kind={kind}")
    T, d, k = (symbol(name) if name in names else size for name, size in (("T", 8), ("d", 12), ("k", 4)))
    wanted = {"deepest": T * d * d * k, "chosen": T * d * (16 + k)}
    assert is_equal(total(table, names), wanted[kind])
    assert "confirmed by counting at" in table["method"]


def test_tokens_of_an_expert_follow_from_values():
    _, table = run_derive("e,k", "mine.py:looped", "--set", "d=3", "--set", "T=5")
    e, k = map(symbol, "ek")
    assert is_equal(total(table, "ek"), 5 * 3 * (e + 3 * k))
    assert "depends on values of tensors" in table["method"] and "u0" not in table["method"]


def test_size_that_divides_another_where_values_decide():
    """Heads have no grid of their own beside a width: 1 to 6 of them divide its multiples of 60."""
    _, table = run_derive("d,h", "mine.py:heads", "--set", "T=5", "--set", "e=3")
    d = symbol("d")
    assert is_equal(total(table, "dh"), 5 * d * (3 + d * 2) + 5 * 5 * d)
    assert "h = 1, 2, …" in table["method"] and "Float" not in table["method"]


def test_polynomial_in_flops(capsys):
    assert main(["mine.py:sized", "--vars", "T", "--set", "h=3", "--flops"]) == 0
    out = capsys.readouterr().out
    # twice 12 T d^2 + 2 T^2 d of d = 12
    assert "FLOPs: 48*T**2 + 3456*T." in out and "$48 T^{2} + 3456 T$" in out and "multiply" not in out
    _, table = run_derive("T", "mine.py:sized", "--set", "h=3", "--flops")
    assert is_equal(total(table, "T"), 12 * symbol("T") * 144 + 24 * symbol("T") ** 2)


def test_latex_has_formulas_alone(capsys):
    assert main(["mine.py:sized", "--vars", "T,d", "--set", "h=1", "--format", "latex"]) == 0
    out = capsys.readouterr().out
    assert "$2 T^{2} d + 12 T d^{2}$" in out and "**" not in out
    assert r"kind & MACs \\" in out and "LaTeX" not in out


def test_inputs_that_vary_are_sizes(capsys):
    assert main(["mine.py:fixed", "--vars", "B,T", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    B, T = symbol("B"), symbol("T")
    # four projections and two of the feed-forward block; scores and values of width 12
    assert is_equal(total(table, "BT"), B * T * (4 * 12 * 12 + 2 * 12 * 20) + 2 * B * T**2 * 12)
    assert table["sizes"] == {"B": "src.size(0), 1 in the example", "T": "src.size(1), 7 in the example"}
    assert table["fixed"] == ["src.size(2) = 12"] and "confirmed by counting at" in table["method"]


def test_sizes_of_inputs_have_their_names(capsys):
    assert main(["mine.py:Net", "--input", "1,3,8,8", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    # height and width are one size in the example
    assert list(table["sizes"]) == ["image_0", "image_2"] and table["fixed"] == ["image.size(1) = 3"]
    n, s = symbol("image_0"), symbol("image_2")
    assert is_equal(total(table, ("image_0", "image_2")), 135 * n * s**2)


def test_whole_numbers_of_a_function_are_sizes():
    rows, table = run_derive("T,d,h", "mine.py:sized")
    T, d = symbol("T"), symbol("d")
    assert is_equal(rows["total"], 12 * T * d**2 + 2 * T**2 * d) and table["domain"][0] == "h divides d"
    assert list(table["sizes"]) == ["T", "d", "h"]


def test_points_are_searched_for():
    # neither the usual primes nor a default suits it
    rows, _ = run_derive("T,d", "mine.py:divisible")
    assert is_equal(rows["total"], symbol("T") * symbol("d") ** 2)


@pytest.mark.parametrize("words, reason", [
    (["mine.py:fixed", "--vars", "T"], "--vars names 1 size of 2 that may vary: src.size(0) (1), src.size(1) (7)"),
    (["mine.py:whole"], "no other sizes of its inputs"),
    (["mine.py:divisible", "--base", "e=3"], "'e' in --base; choose from T, d"),
    (["mine.py:fixed", "--part", "model"], "--part goes with a preset"),
    (["moa-8K8E128D", "--module", "mine.py:fixed"], "give one TARGET"),
])  # fmt: skip
def test_wrong_words_name_what_is_valid(words, reason, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1
