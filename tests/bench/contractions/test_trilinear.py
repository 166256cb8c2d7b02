"""nn.Bilinear: sum over i and j of x_ni w_oij y_nj, as torch runs it, and its gradients."""

import pytest
import torch
from torch import nn

from headcount.bench.contractions.count import count_contractions
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

N, I, J, O = 7, 5, 3, 11  # noqa: E741


def inputs(device, **options):
    return torch.ones(N, I, device=device, **options), torch.ones(N, J, device=device, **options)


def by_kind(ledger):
    return {kind: macs for kind, macs in ledger.group(lambda entry: entry.kind).items() if macs}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bilinear_forward_and_backward(device):
    """The gradient of y multiplies x by w once more, and sums that times the output's gradient over all outputs."""
    layer = nn.Bilinear(I, J, O, device=device)
    counted = count_contractions(record(layer, inputs(device, requires_grad=True), backward=True))
    whole = N * O * I * J
    assert by_kind(counted.ledger) == {
        "linear": whole, "linear_dx": whole, "linear_dw": whole, "linear_recompute": whole,
        "contraction": N * O * J, "contraction_dx": N * O * J,
    }  # fmt: skip


@pytest.mark.parametrize("unrolled", [0, 1, 2, 3])
def test_trilinear_with_unrolled_dimension(unrolled):
    """i is summed before j is multiplied, unless it is i that is gone through: then each i is multiplied by j."""

    def call(x, w, y):
        return torch.ops.aten._trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3], unroll_dim=unrolled)

    x, y = inputs("cpu")
    counted = count_contractions(record(module(call), (x, torch.ones(O, I, J), y)))
    assert counted.macs == N * O * J * (I if unrolled == 2 else I + 1)
