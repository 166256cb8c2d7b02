"""count_macs and assert_macs: totals, rows, errors, and formulas of further operators."""

from collections import Counter

import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench.api.assertions import assert_macs
from headcount.bench.api.count import count_macs
from headcount.bench.contractions import module_tree
from headcount.bench.contractions.audit import UNKNOWN
from headcount.bench.contractions.classify import UnsupportedError, contraction_parts
from headcount.bench.contractions.products import RULES
from headcount.bench.contractions.zero_mac_ops import KNOWN, base
from headcount.bench.counting.result import Count
from headcount.bench.counting.run import count_contractions
from headcount.bench.trace.record import record
from headcount.formulas.ledger import Ledger
from tests.bench.contractions.function_modules import module

DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x, *, scale=1.0):
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(scale * q @ k.mT, -1) @ v


X = torch.ones(2, 7, 5)
FORM = "3*B*T*d^2 + 2*B*T**2*d"


@DEVICES
def test_module_matches_closed_form(device):
    model, x = Attention(5).to(device), X.to(device)
    assert count_macs(model, x).macs == 3 * 2 * 7 * 5 * 5 + 2 * 2 * 7 * 7 * 5
    assert_macs(model, x, expected=FORM, B=2, T=7, d=5)
    assert_macs(model, kwargs={"x": x, "scale": 2.0}, expected=2030)
    assert_macs(model, x, expected=f"3 * ({FORM})", B=2, T=7, d=5, backward=True)


def test_wrong_form_lists_products():
    with pytest.raises(AssertionError) as raised:
        assert_macs(Attention(5), X, expected="3*B*T*d**2 + B*T**2*d", B=2, T=7, d=5)
    assert str(raised.value).splitlines() == [
        "2,030 multiply-accumulates, expected 1,540 = 3*B*T*d**2 + B*T**2*d (+490)",
        "            1,050  qkv  linear  1 x m=14 i=5 j=15",
        "              490  (model)  scores  1 x b=2 m=7 i=5 j=7",
        "              490  (model)  values  1 x b=2 m=7 i=7 j=5",
    ]


def test_encoder_fast_path():
    layer, x = nn.TransformerEncoderLayer(12, 2, 17, batch_first=True), torch.ones(3, 11, 12)
    fast = count_contractions(record(layer, (x,)))
    assert fast.macs == 3 * (11 * 12 * 36 + 2 * 11 * 11 * 12 + 11 * 12 * 12 + 2 * 11 * 12 * 17)
    assert [line.operation for line in fast.audit] == ["_transformer_encoder_layer_fwd"]
    # sizes are Python integers, not tensors' symbols
    assert {type(size) for entry in fast.ledger for size in entry.dims.values()} == {int}
    assert count_contractions(record(layer, (x,), backward=True, training=True)).macs == 3 * fast.macs


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(12, 2, 17, batch_first=True, **options)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("make", [
    encoder_layer,
    lambda **options: nn.TransformerEncoder(encoder_layer(**options), 2, None, False),
    lambda **options: nn.Sequential(encoder_layer(activation=nn.GELU(), **options)),
], ids=["layer", "layers", "inside"])  # fmt: skip
def test_encoder_fast_path_has_the_products_of_its_modules(make, norm_first):
    layer, x = make(norm_first=norm_first).eval(), torch.ones(3, 11, 12)
    fast, shapes = count_macs(layer, x), count_macs(layer.to("meta"), x.to("meta"))
    assert {line.operation for line in fast.audit} >= {"_transformer_encoder_layer_fwd"}
    assert "_transformer_encoder_layer_fwd" not in {line.operation for line in shapes.audit}
    assert list(fast.ledger) == list(shapes.ledger)
    assert fast.by_module() == shapes.by_module() and fast.uncalled == shapes.uncalled == ()


def test_fast_path_of_another_module_has_no_parts_that_it_lacks():
    layer, x = nn.TransformerEncoderLayer(12, 2, 17, batch_first=True).eval(), torch.ones(3, 5, 12)
    attention, norms = layer.self_attn, (layer.norm1, layer.norm2)
    weights = [attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias]
    norm = [tensor for one in norms for tensor in (one.weight, one.bias)]
    forward = [tensor for one in (layer.linear1, layer.linear2) for tensor in (one.weight, one.bias)]
    call = module(lambda x: torch._transformer_encoder_layer_fwd(
        x, 12, 2, *weights, False, False, 1e-5, *norm, *forward,
    ))  # fmt: skip
    with torch.no_grad():
        found, whole = count_macs(nn.Sequential(call), x), count_macs(layer, x)
    assert found.macs == whole.macs and found.by_kind() == whole.by_kind()
    assert found.by_module() == {"": whole.macs, "0": whole.macs}


def test_attention_fast_path_has_the_products_of_the_slow_one():
    attention, x = nn.MultiheadAttention(12, 2, batch_first=True).eval(), torch.ones(3, 11, 12)
    fast, shapes = count_macs(attention, x, x, x), count_macs(attention.to("meta"), *[x.to("meta")] * 3)
    assert [line.operation for line in fast.audit] == ["_native_multi_head_attention"]
    assert list(fast.ledger) == list(shapes.ledger)


def test_unsupported_operator_raises():
    spectrum = module(lambda x: torch.fft.rfft(x).abs())
    for model, place in ((spectrum, "the model"), (nn.Sequential(spectrum), "0")):
        with pytest.raises(UnsupportedError, match=rf"_fft_r2c on 2x7x5 \(in {place}\)"):
            count_macs(model, X)
    with pytest.raises(UnsupportedError, match=r"_fft_r2c on 2x7x5 \(in the model\)") as found:
        contraction_parts(record(spectrum, (X,)))
    assert [(line.state, line.calls) for line in found.value.unsupported] == [(UNKNOWN, 1)]
    assert count_macs(spectrum, X, allow_unsupported=True).unsupported
    assert_macs(spectrum, X, expected="B", B=2, formulas={"_fft_r2c": lambda event: event.args[0].shape[0]})


def test_equal_layers_are_one_line_of_the_message():
    layer = lambda: module(lambda x: torch.linalg.eigvalsh(x) + x)  # noqa: E731
    layers = nn.Sequential(*(layer() for _ in range(3)), nn.ReLU(), *(layer() for _ in range(2)))
    with pytest.raises(UnsupportedError) as error:
        count_macs(layers, torch.eye(5))
    assert str(error.value).count("5x5") == 1 and "(5 times, in 0-2,4-5)" in str(error.value)
    assert len(error.value.unsupported) == 5
    assert str(hc.count(layers, torch.eye(5), allow_unsupported=True)).count("Not counted: ") == 1


@pytest.mark.parametrize("macs", [-1, 1.5, None, "7"])
def test_formula_without_whole_number_raises(macs):
    with pytest.raises(ValueError, match=f"^the formula of addmm gives {macs!r}, which is no whole number from 0 on$"):
        count_macs(nn.Linear(3, 5), torch.ones(4, 3), formulas={"addmm": lambda event: macs})


def test_formula_for_custom_operator():
    @torch.library.custom_op("headcount_test::twice", mutates_args=())
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    trace = record(module(twice), (torch.ones(3, 5), torch.ones(5, 7)))
    with pytest.raises(UnsupportedError, match="headcount_test.twice on 3x5 5x7"):
        count_contractions(trace)
    formulas = {"headcount_test.twice": lambda event: event.args[0].numel * event.out.shape[-1]}
    assert count_contractions(trace, formulas=formulas).macs == 3 * 5 * 7


def test_operator_with_contractions_attribute(monkeypatch):
    def contractions(a, b):
        return [("linear", {"m": a.shape[0], "i": b.shape[1]}, (1,))]

    with torch.library._scoped_library("shelf", "DEF") as library:
        library.define("mix(Tensor a, Tensor b) -> Tensor")
        library.impl("mix", lambda a, b: a.new_empty(a.shape[0]), "CompositeExplicitAutograd")
        monkeypatch.setattr(torch.ops.shelf.mix, "contractions", contractions, raising=False)
        mixed = module(lambda a, b: torch.ops.shelf.mix(a, b))
        assert count_macs(mixed, torch.ones(7, 5), torch.ones(3, 11)).by_kind() == {"linear": 7 * 11}


def test_free_operations_hold_no_product():
    assert not {base(name) for name in RULES} & KNOWN
    assert not [name for name in KNOWN if {"mm", "conv"} & set(name.split("_")) or "matmul" in name or "convol" in name]


# Subtotals and rows

B, T, D, H = 3, 7, 11, 13
LINEAR, SQUARE, HEAD = B * T * D * H, B * T * T * D, B * T * D * 2
BLOCK = 2 * LINEAR + 2 * SQUARE
TOTAL = 2 * BLOCK + HEAD


@pytest.fixture(scope="module")
def blocks():
    """Return the count of two blocks and a head."""
    blocks = [nn.Sequential(nn.Linear(D, H), nn.Linear(H, D), module(lambda y: y @ y.mT @ y)) for _ in range(2)]
    return hc.count(nn.Sequential(nn.Sequential(*blocks), nn.Linear(D, 2)), torch.zeros(B, T, D))


def test_modules_and_kinds_add_up(blocks):
    modules = blocks.by_module()
    assert modules[""] == blocks.macs == TOTAL and blocks.flops == 2 * TOTAL
    assert modules["0"] == modules["0.0"] + modules["0.1"] == 2 * BLOCK
    assert modules["0.1.0"] == LINEAR and modules["1"] == HEAD
    assert blocks.by_kind() == {"linear": 4 * LINEAR + HEAD, "contraction": 4 * SQUARE}


class OwnWeights(nn.Module):
    """A module with parameters of its own beside two modules inside."""

    def __init__(self, inside=None):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(D, D)), nn.Parameter(torch.zeros(5))
        self.a, self.b = nn.Linear(D, D), inside or nn.LayerNorm(D)

    def forward(self, x):
        return self.b(self.a(x @ self.weight))


def test_parameters_of_rows_inside_add_up():
    model = nn.Sequential(*(OwnWeights(OwnWeights()) for _ in range(2)))
    rows = module_tree.table(hc.count(model, torch.zeros(B, T, D)), (), None).rows
    assert [row.module for row in rows].count("(parameters)") == 2
    inside, outer = Counter(), {}
    for place, row in enumerate(rows):
        outer[row.level] = place
        if row.level:
            inside[outer[row.level - 1]] += row.params or 0
    assert len(inside) == 3 and all(rows[place].params == params for place, params in inside.items())


def test_dataframe_rows(blocks):
    frame = blocks.to_dataframe()
    assert list(frame.columns) == ["path", "kind", "sizes", "times", "macs", "flops", "share", "type", "params"]
    assert frame["macs"].sum() == TOTAL and frame["flops"].sum() == 2 * TOTAL
    assert abs(frame["share"].sum() - 100) < 1e-9
    assert frame["sizes"][0] == f"m={B * T} i={D} j={H}" and frame["times"][0] == 1
    assert [str(frame[name].dtype) for name in ("times", "macs", "flops")] == ["int64"] * 3
    empty = Count("", Ledger(())).to_dataframe()
    assert len(empty) == 0 and list(empty.columns) == list(frame.columns)
