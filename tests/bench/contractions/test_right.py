"""The right count: the same in every spelling and on every device, with every operation accounted for."""

import pytest
import torch
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


def test_no_operation_is_counted_and_free():
    assert not {base(name) for name in RULES} & KNOWN


def test_free_operations_hold_no_product():
    assert not [name for name in KNOWN if {"mm", "conv"} & set(name.split("_")) or "matmul" in name or "convol" in name]
