"""The right count: the same in every spelling and on every device, with every operation accounted for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.contractions.count import UncountedError, count_contractions
from headcount.bench.contractions.products import RULES
from headcount.bench.contractions.zero_mac_ops import KNOWN, base
from headcount.bench.formulations.catalog import FORMULATIONS, formulation
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

IMPOSSIBLE = {("mha-flex", "meta"), ("moa-flex", "meta"), ("moa-mask-loop", "meta")}
"""FlexAttention refuses meta; a mask loop needs values."""


def count(model, *inputs, **options):
    return count_contractions(record(model, inputs, **options))


def count_formulation(name, device):
    model, inputs = formulation(name).build(device)
    return count(model, *inputs.values())


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", [s.name for s in FORMULATIONS])
def test_formulation_matches_closed_form(name, device):
    if (name, device) in IMPOSSIBLE:
        with pytest.raises((ValueError, NotImplementedError)):
            count_formulation(name, device)
        return
    assert count_formulation(name, device).macs == formulation(name).exact.macs


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (torch.mv, [(7, 5), (5,)], 7 * 5),
        (torch.dot, [(5,), (5,)], 5),
        (torch.matmul, [(3, 1, 7, 5), (11, 5, 13)], 3 * 11 * 7 * 5 * 13),
        (torch.addmm, [(13,), (7, 5), (5, 13)], 7 * 5 * 13),
        (torch.addbmm, [(7, 13), (3, 7, 5), (3, 5, 13)], 3 * 7 * 5 * 13),
        (lambda a, b: torch.einsum("ab,bc,ad->cd", a, b, a), [(7, 5), (5, 13)], 7 * 5 * 13 + 7 * 13 * 5),
        (lambda a, b: torch.einsum("ab,ab->ab", a, b), [(7, 5), (7, 5)], 0),
        (lambda x, w: F.conv1d(x, w, padding=1), [(2, 6, 7), (9, 6, 3)], 2 * 9 * 6 * 3 * 7),
        (lambda x, w: F.conv1d(x, w, groups=3), [(2, 6, 7), (9, 2, 3)], 2 * 9 * 2 * 3 * 5),
        (lambda x, w: F.conv_transpose2d(x, w), [(2, 6, 5, 7), (6, 9, 3, 2)], 2 * 5 * 7 * 6 * 9 * 3 * 2),
        (lambda a, b: torch.tensordot(a, b, dims=2), [(7, 5, 3), (5, 3, 13)], 7 * 5 * 3 * 13),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_single_calls(function, shapes, macs, device):
    inputs = [torch.ones(shape, device=device) for shape in shapes]
    assert count(module(function), *inputs).macs == macs


def test_lstm_and_encoder_fast_path():
    lstm = nn.LSTM(5, 7, num_layers=2, batch_first=True)
    assert count(lstm, torch.ones(3, 11, 5)).macs == 3 * 11 * 4 * (7 * 5 + 7 * 7 + 7 * 7 + 7 * 7)
    layer = nn.TransformerEncoderLayer(12, 2, 17, batch_first=True)
    macs = 3 * (11 * 12 * 36 + 2 * 11 * 11 * 12 + 11 * 12 * 12 + 2 * 11 * 12 * 17)
    fast = count(layer, torch.ones(3, 11, 12))
    assert [line.operation for line in fast.audit] == ["_transformer_encoder_layer_fwd"]
    # sizes are whole numbers, which are printed
    assert {type(size) for entry in fast.ledger for size in entry.dims.values()} == {int}
    assert fast.macs == count(layer, torch.ones(3, 11, 12), backward=True, training=True).macs / 3 == macs


def test_formula_for_custom_operator():
    @torch.library.custom_op("headcount_test::twice", mutates_args=())
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    trace = record(module(twice), (torch.ones(3, 5), torch.ones(5, 7)))
    with pytest.raises(UncountedError, match="headcount_test.twice on 3x5 5x7"):
        count_contractions(trace)
    formulas = {"headcount_test.twice": lambda event: event.args[0].numel * event.out.shape[-1]}
    assert count_contractions(trace, formulas=formulas).macs == 3 * 5 * 7


def test_grouped_mm_of_blocks():
    x, w = torch.ones(3, 16, 32, dtype=torch.bfloat16), torch.ones(3, 32, 48, dtype=torch.bfloat16)
    (entry,) = count(module(torch._grouped_mm), x, w).ledger.entries
    assert (entry.kind, dict(entry.dims)) == ("expert_linear", {"b": 3, "m": 16, "i": 32, "j": 48})


def test_no_operation_is_counted_and_free():
    assert not {base(name) for name in RULES} & KNOWN


def test_free_operations_hold_no_product():
    assert not [name for name in KNOWN if {"mm", "conv"} & set(name.split("_")) or "matmul" in name or "convol" in name]


@pytest.mark.parametrize(
    ("shape", "seen", "kind"),
    [
        ((5, 11), lambda w: w, "linear"),
        ((5, 13), lambda w: w[:, :11], "linear"),
        ((3, 5, 11), lambda w: w[1], "expert_linear"),
        ((1, 5, 11), lambda w: w[0], "linear"),
    ],
    ids=["whole", "columns", "one of three", "the only one"],
)
def test_expert_linear_is_a_slice(shape, seen, kind):
    layer = module(lambda x: x @ seen(layer.weight))
    layer.weight = nn.Parameter(torch.ones(shape))
    assert count(layer, torch.ones(7, 5)).by_kind() == {kind: 7 * 5 * 11}
