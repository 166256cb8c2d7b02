"""Comparison of two models: parts of the difference, and sizes at which its sign changes."""

import math

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.bench.commands import compare
from headcount.bench.macs import cases
from headcount.bench.macs.crossover import crossovers
from headcount.formulas.symbols import symbol

CLOSED = ["--counter", "closed-form"]
BIG = ["compare", "moa-16K32E256D", "transformer-big"]


def index_by(rows, key):
    return {row[key]: row for row in rows}


def amounts(rows, quantity):
    """Return the amounts of a quantity by block or kind."""
    return {row["part"]: row["amounts"][quantity] for row in rows}


def test_blocks_match_hand_formulas(tables):
    blocks = amounts(tables(*BIG, *CLOSED)["compare-block"], "rule")
    # encoder 6 and decoder 2 * 6 layers; d_m 512, K D = 4096, E 32 against d_m 1024, each of 10 tokens
    attention = 18 * 10 * (2 * 512 * 4096 + 2 * 512 * 256 + 512 * 32) - 18 * 10 * 4 * 1024 * 1024
    assert attention == 50_135_040
    assert blocks["attention"]["difference"] == attention
    assert blocks["feed-forward"]["difference"] == 12 * 10 * 2 * (512 * 2048 - 1024 * 4096)
    assert blocks["vocabulary"]["difference"] == 10 * 32000 * (512 - 1024)
    assert blocks.keys() == {"attention", "feed-forward", "vocabulary", "total"}
    assert (blocks["total"]["a"], blocks["total"]["b"]) == (1_220_608_000, 2_089_287_680)


BLOCKS = ["attention", "feed-forward", "vocabulary", "other"]
KINDS = ["linear", "expert_linear", "scores", "values", "conv"]
"""The order of rows, whichever model comes first."""


@pytest.mark.parametrize(
    "pair", [BIG[1:], ["mlm-transformer", "mlm-moa-8K64E256D"], ["lightconv", "mae-7"]], ids="-".join
)
def test_parts_sum_to_total(pair, tables):
    found = tables("compare", *pair, *CLOSED)
    for what in ("block", "kind"):
        *rows, total = found[f"compare-{what}"]
        names = [row["part"] for row in rows]
        assert names == [name for name in [*BLOCKS, *KINDS] if name in names]
        for quantity, whole in total["amounts"].items():
            sums = whole["b"]
            for part in (row["amounts"][quantity] for row in rows):
                sums += part["difference"]
                assert part["difference"] == part["a"] - part["b"]
                assert part["running_total"] == sums
            assert sums == whole["a"]


def test_layers_are_attention(tables):
    layers = ["mha:h=8,d_h=64,d_m=512,T=128", "moa:K=8,E=16,D=64,d_m=512,T=128"]
    found = tables("compare", *layers, *CLOSED)
    assert [row["part"] for row in found["compare-block"]] == ["attention", "total"]
    assert [row["part"] for row in found["compare-params"]] == ["attention", "total"]


def test_wrong_count_at_crossover_fails_check(command, monkeypatch):
    def off_by_one(case, counters, device):
        return {"torch": case.ledger.macs + (case.preset == "transformer-big")}

    monkeypatch.setattr(cases, "counted", off_by_one)
    code, out, err = command(*BIG, "--counter", "torch", "--check")
    assert code == 1 and "T = 785: torch does not count a difference of -41,799,680" in err and "  no [" in out


def test_fields_differ_between_sides(tables):
    data = tables("compare", "moa-8K8E128D,top_k=4,num_experts=16", "moa-8K8E128D", *CLOSED)
    attention = amounts(data["compare-block"], "exact")["attention"]["difference"]
    # K = 4 not 8: two projections and two products; E = 16 not 8: the router
    assert attention == 18 * 10 * (-4 * (2 * 512 * 128 + 2 * 10 * 128) + 8 * 512)
    assert {r["letter"] for r in data["compare-crossovers"]} == {"T", "K of A", "E of A", "K of B", "E of B"}


def crossovers_of(found):
    keys = ("letter", "below", "above", "at_below", "at_above", "counted")
    return {tuple(row[key] for key in keys) for row in found["compare-crossovers"]}


def test_crossovers_of_ideal_moh_in_heads(tables):
    d_m, T, N, d_h = 768, 2048, 2, 64
    # of one head: queries and output, keys and values, the products with scores
    own, kv, pairs = N * 2 * T * d_m * d_h, N * 2 * T * d_m * d_h, N * 2 * T * T * d_h
    routers = N * T * d_m * (12 + 2)
    models = ["moh-llm-s-75,form=ideal", "llm-s", "--set", f"num_layers={N}"]
    found = crossovers_of(tables("compare", *models, "--counter", "torch"))
    # 3 heads fewer than 12 are saved with s = 3 and r = 6, none with s + r = 12, and the routers are added
    for letter, total in (("s of A", 6), ("r of A", 9)):
        assert (letter, total - 1, total, routers - own - pairs, routers, "torch") in found
    # h heads have keys and values, and a router of h + 2 columns; 9 are computed
    cost = {h: N * T * d_m * (h + 2) + 9 * (own + pairs) + h * kv - 12 * (own + kv + pairs) for h in (22, 23)}
    assert ("h of A", 22, 23, cost[22], cost[23], "torch") in found
    assert ("T", None, None, None, None, "no crossover") in found and len(found) == 4


def test_crossovers_without_a_router(tables):
    small = ["d_model=8", "num_heads=4", "d_ff=3", "num_layers=1", "vocab_size=11"]
    a = ",".join(["moh-llm-s-75", *small, "num_shared_heads=1", "top_k=2"])
    b = ",".join(["moh-llm-s-75", *small, "num_shared_heads=2", "top_k=1"])
    found = tables("compare", a, b, "--seq-len", "7", "--counter", "torch")
    row = 7 * 8
    # with routed heads: 4 columns for s = 0, 5 for s = 1, 6 from s = 2 on; without: those of the shared heads
    assert {one for one in crossovers_of(found) if one[0] in ("s of A", "r of B")} == {
        ("s of A", 1, 2, -row, 0, "torch"),
        ("r of B", 0, 1, 3 * row, -row, "torch"),
    }
    by_letter = index_by(found["compare-crossovers"], "letter")
    assert by_letter["s of A"]["exceptions"] == {"0": -2 * row, "1": -row}
    assert by_letter["r of A"]["exceptions"] == {"0": -6 * row}


def test_crossover_uses_valid_sizes(tables):
    a = "moh-llama3-8b,num_layers=1,vocab_size=128256"
    crossed = crossovers_of(tables("compare", a, "llama3-8b,num_layers=1", *CLOSED))
    found = {one for one in crossed if one[0] == "h of A"}
    # 8 key/value heads divide 24, 32 and 40, and nothing between; the query-norm router costs no product
    T, d_m, d_h = 8192, 4096, 128
    eight = 8 * (2 * T * d_m * d_h + 2 * T * T * d_h)
    assert found == {("h of A", 24, 32, -eight, 0, "not counted"), ("h of A", 32, 40, 0, eight, "not counted")}


@settings(deadline=None)
@given(
    st.lists(st.integers(-60, 60), max_size=3),
    st.integers(-5, 5),
    st.dictionaries(st.integers(0, 1), st.integers(-1, 1)),
)
def test_crossovers_match_brute_force(roots, scale, exceptions):
    x = symbol("x")
    polynomial = sympy.expand(scale * sympy.prod([2 * x - root for root in roots]))
    values = {n: exceptions.get(n, scale * math.prod(2 * n - root for root in roots)) for n in range(40)}
    sign = {n: (v > 0) - (v < 0) for n, v in values.items()}
    found = crossovers(polynomial, x, 0, exceptions)
    assert [one.below for one in found] == [n for n in range(39) if sign[n] != sign[n + 1]]
    assert all((one.at_below, one.at_above) == (values[one.below], values[one.above]) for one in found)


USER = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, 2, batch_first=True, bias=False)

    def forward(self, x):
        return self.self_attn(x, x, x, need_weights=False)[0]

def layer(T, d):
    return Layer(d), (torch.empty(1, T, d),)
"""


def test_preset_against_user_module(tables, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USER)
    small = "moa-8K8E128D,vocab_size=11,d_ff=7,num_encoder_layers=1,num_decoder_layers=1"
    data = tables("compare", small, f"{path}:layer,T=10,d=1792", "--counter", "torch")
    d, D, h = 1792, 128, 8
    assert amounts(data["compare-block"], "exact")["attention"]["b"] == 4 * 10 * d * d + 2 * 10 * 10 * d
    assert amounts(data["compare-params"], "params")["total"]["b"] == 4 * d * d
    # three MoA layers with E = K = 8, two feed-forward blocks, the vocabulary; S = T
    linear = 3 * (512 * 8 + 2 * h * 512 * D + 2 * 512 * D) + 2 * 2 * 512 * 7 + 512 * 11 - 4 * d * d
    square = 3 * 2 * h * D - 2 * d
    (crossover,) = [r for r in data["compare-crossovers"] if r["letter"] == "T"]
    assert crossover["difference"] == f"{square}*T^2 - {-linear}*T"
    assert (crossover["below"], crossover["above"]) == (-linear // square, -linear // square + 1)
    assert crossover["counted"] == "torch"


MODEL = """
import torch
from torch import nn

class Mixer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(d, d) for _ in range(4))
    def forward(self, x):
        weights = torch.softmax(self.a(x) @ self.b(x).mT, -1)
        return self.d(weights @ self.c(x))

class Wide(nn.Module):
    def __init__(self, d, f):
        super().__init__()
        self.first, self.second = nn.Linear(d, f), nn.Linear(f, d)
    def forward(self, x):
        return self.second(self.first(x).relu())

class Model(nn.Module):
    def __init__(self, n, d, f, v):
        super().__init__()
        self.words = nn.Embedding(v, d)
        self.parts = nn.ModuleList(module for _ in range(n) for module in (nn.LayerNorm(d), Mixer(d), Wide(d, f)))
        self.out = nn.Linear(d, v, bias=False)
    def forward(self, ids):
        x = self.words(ids)
        for part in self.parts:
            x = part(x)
        return self.out(x)

def make(n, d, f, v, T):
    return Model(n, d, f, v), (torch.zeros(1, T, dtype=torch.long),)
"""


@pytest.mark.parametrize(("n", "d", "f", "v", "T"), [(1, 6, 11, 31, 5), (3, 10, 10, 47, 7)])
def test_blocks_of_a_module_follow_its_products(tables, tmp_path, n, d, f, v, T):
    path = tmp_path / "named_otherwise.py"
    path.write_text(MODEL)
    spec = f"{path}:make,n={n},d={d},f={f},v={v},T={T}"
    data = tables("compare", "llama3-8b", spec, "--counter", "closed-form")
    params = {part: one["b"] for part, one in amounts(data["compare-params"], "params").items()}
    attention, wide, words = n * 4 * (d * d + d), n * (2 * d * f + f + d), 2 * v * d
    assert params == {
        "attention": attention, "feed-forward": wide, "vocabulary": words, "other": n * 2 * d,
        "total": attention + wide + words + n * 2 * d,
    }  # fmt: skip
    block = {part: one["b"] for part, one in amounts(data["compare-block"], "exact").items()}
    assert block["feed-forward"] == n * 2 * T * d * f and block["vocabulary"] == T * d * v
    assert block["attention"] == n * (4 * T * d * d + 2 * T * T * d)


def test_other_lengths_are_noted(tmp_path, capsys):
    path = tmp_path / "named_otherwise.py"
    path.write_text(MODEL)
    for tokens in (5, 7):
        spec = f"{path}:make,n=1,d=6,f=7,v=11,T={tokens}"
        assert compare.main(["llama3-8b,T=7", spec, "--counter", "closed-form"]) == 0
        assert (f"The inputs differ: 7 tokens in A and {tokens} in B." in capsys.readouterr().out) == (tokens != 7)


def test_columns_of_modules(tables, tmp_path):
    """A preset has them in closed form, a module after its run, and a reason where it has none."""
    path = tmp_path / "named_otherwise.py"
    path.write_text(MODEL)
    spec = f"{path}:make,n=1,d=6,f=11,v=31,T=5"
    names = ["macs_per_sample", "forward_bytes", "bytes_moved", "kv_bytes"]
    rows = tables("compare", "llama3-8b", spec, "--counter", "closed-form", "--columns", *names)["memory"]
    preset, module = (row for row in rows if row.get("form") is None)
    T, d, f, v = 5, 6, 11, 31
    macs = 4 * T * d * d + 2 * T * T * d + 2 * T * d * f + T * d * v
    read = 4 * (d * d + d) + 2 * d * f + f + d + v * d + T * d + 2 * d
    assert (module["macs_per_sample"], module["forward_bytes"]) == (macs, 2 * read)
    assert module["bytes_moved"] > 0 and "a cache is known of" in module["missing"]["kv_bytes"]
    assert (
        preset["kv_bytes"] > 0
        and preset["missing"]["bytes_moved"] == "known only where the module runs: count one TARGET"
    )
