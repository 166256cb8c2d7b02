"""One function, one number: whatever the device, the spelling or the kernel, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from headcount.bench.contractions.count import count_contractions
from headcount.bench.count import count_macs
from headcount.bench.counters.readings import read
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

B, H, T, D = 2, 3, 7, 16
Q, K = torch.ones(B, H, T, D), torch.ones(B, H, 11, D)
ATTENTION = 2 * B * H * T * 11 * D


def on(device, *tensors):
    return tuple(tensor.to(device) for tensor in tensors)


# Fused attention: its backward computes the scores anew.


def attend(q, k, **options):
    return F.scaled_dot_product_attention(q, k, k, **options)


FUSED = {
    "plain": attend,
    "causal": lambda q, k: attend(q, k, is_causal=True),
    "scaled": lambda q, k: attend(q, k, scale=0.5),
    "masked": lambda q, k: attend(q, k, attn_mask=torch.ones(T, 11, dtype=torch.bool, device=q.device)),
    "biased": lambda q, k: attend(q, k, attn_mask=torch.zeros(T, 11, device=q.device)),
}
NOT_FUSED = {
    "dropout": lambda q, k: attend(q, k, dropout_p=0.5),
    "values of another width": lambda q, k: F.scaled_dot_product_attention(q, k, k[..., :8]),
}
# torch 2.14 takes them as one batch
(FUSED if torch.__version__ >= (2, 14) else NOT_FUSED)["three dimensions"] = lambda q, k: attend(
    q.flatten(0, 1), k.flatten(0, 1)
)


# what a CPU makes of these is torch's to say, and not the same in every version
DEVICE_DEPENDENT = {
    "keys of one head": lambda q, k: attend(q, k[:, :1]),
    "keys of one sequence": lambda q, k: attend(q, k[:1]),
    "a mask of three dimensions": lambda q, k: attend(q, k, attn_mask=torch.zeros(q.shape[1], T, 11, device=q.device)),
    "three dimensions, each with its mask": lambda q, k: attend(
        q.flatten(0, 1), k.flatten(0, 1), attn_mask=torch.zeros(q.shape[0] * q.shape[1], T, 11, device=q.device)
    ),
    "three dimensions and a mask of four": lambda q, k: attend(
        q[0], k[0], attn_mask=torch.zeros(2, q.shape[1], T, 11, device=q.device)
    ),
    "three dimensions, keys of one head": lambda q, k: attend(q[0], k[0, :1]),
}


@pytest.mark.parametrize("how", DEVICE_DEPENDENT)
def test_attention_agrees_on_devices(how):
    cpu, meta = (record(module(DEVICE_DEPENDENT[how]), on(device, Q, K), backward=True) for device in ("cpu", "meta"))
    assert count_contractions(cpu).macs == count_contractions(meta).macs
    assert [fact.shape for fact in cpu.out] == [fact.shape for fact in meta.out]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("how", FUSED)
def test_fused_backward_recomputes_scores(how, device):
    found = count_macs(module(FUSED[how]), *on(device, Q, K), backward=True)
    assert found.macs == 7 * ATTENTION // 2
    assert found.ledger.group(lambda entry: entry.kind)["scores_recompute"] == ATTENTION // 2


@pytest.mark.parametrize("how", NOT_FUSED)
def test_unfused_backward_reuses_scores(how):
    first, second = (
        count_macs(module(NOT_FUSED[how]), *on(device, Q, K), backward=True).ledger for device in ("cpu", "meta")
    )
    assert first.macs == second.macs
    assert "scores_recompute" not in second.group(lambda entry: entry.kind)


# Recurrent layers: gradients of everything but the first state, which is zeros.

STEPS, IN, HIDDEN = 5, 13, 11


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("layer", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_recurrent_backward(layer, gates, device):
    found = count_macs(layer(IN, HIDDEN).to(device), *on(device, torch.ones(STEPS, B, IN)), backward=True)
    into, over = STEPS * B * IN * gates * HIDDEN, STEPS * B * HIDDEN * gates * HIDDEN
    assert found.dispatched == 3 * into + 3 * over - over // STEPS


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("layer", "gates", "added"),
    [
        (nn.RNN(IN, HIDDEN), 1, 0),
        (nn.GRU(IN, HIDDEN), 3, 0),
        (nn.LSTM(IN, HIDDEN), 4, 2),
        (nn.LSTMCell(IN, HIDDEN), 4, 2),
    ],
)
def test_fused_cell_elementwise_products(layer, gates, added, device):
    """f c + i g of an LSTM is written elementwise wherever no kernel does it."""
    steps = 1 if isinstance(layer, nn.RNNCellBase) else STEPS
    x = torch.ones(steps, B, IN, device=device)
    found = count_macs(layer.to(device), x[0] if steps == 1 else x, elementwise="include")
    dispatched = steps * B * gates * HIDDEN * (IN + HIDDEN)
    assert (found.dispatched, found.macs) == (dispatched, dispatched + added * steps * B * HIDDEN)


# Complex numbers: one product of them is one.


def complex_tensors(device):
    return on(device, torch.ones(2, 3, 9, dtype=torch.complex64), torch.ones(5, 3, 3, dtype=torch.complex64))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_complex_convolution(device):
    x, w = complex_tensors(device)
    macs = 2 * 7 * 3 * 3 * 5
    assert count_macs(module(F.conv1d), x, w).macs == macs
    assert (
        count_macs(module(lambda x, w: x.unfold(2, 3, 1).permute(0, 2, 1, 3).flatten(2) @ w.flatten(1).mT), x, w).macs
        == macs
    )
    assert count_macs(module(F.conv1d), x, w, backward=True).macs == 3 * macs
    # of the three real ones it runs as, one has no bias
    with_bias = module(lambda x, w: F.conv1d(x, w, w[:, 0, 0]))
    assert count_macs(with_bias, x, w, backward=True).macs == 3 * macs


class Convolving(torch.autograd.Function):
    """A gradient that is made of complex convolutions, all within one call."""

    @staticmethod
    def forward(ctx, x, *weights):
        ctx.save_for_backward(x, *weights)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        return grad * sum(F.conv1d(x, w).abs().sum() for w in weights), *(None for _ in weights)


@pytest.mark.parametrize("widths", [(3, 5), (3, 3)], ids=["of two sizes", "of one size"])
def test_complex_convolutions_in_one_gradient(widths):
    x = torch.ones(2, 3, 9, dtype=torch.complex64)
    weights = [torch.ones(5, 3, width, dtype=torch.complex64) for width in widths]
    frozen = module(lambda x: Convolving.apply(x, *weights).abs())
    macs = sum(2 * (9 - width + 1) * 3 * width * 5 for width in widths)
    assert count_macs(frozen, x, backward=True).macs == macs


def test_convolution_without_function_call():
    x, w = (tensor.real for tensor in complex_tensors("cpu"))

    def unseen(x, w):
        with torch._C.DisableTorchFunction():
            return F.conv1d(x, w)

    assert count_macs(module(unseen), x, w).macs == 2 * 7 * 3 * 3 * 5


# FlexAttention: its functions of one score run once for each.

PLACES, OTHER = torch.ones(T, 5), torch.ones(11, 5)


def flexed(score_mod=None, mask=None):
    def run(q, k):
        block = mask and create_block_mask(mask, None, None, q.shape[2], k.shape[2], device=q.device)
        return flex_attention(q, k, k, score_mod=score_mod, block_mask=block)

    return module(run)


@pytest.mark.parametrize(
    "score_mod",
    [
        lambda s, b, h, i, j: s + (PLACES[i] * OTHER[j]).sum(-1),
        lambda s, b, h, i, j: s + torch.dot(PLACES[i], OTHER[j]),
        lambda s, b, h, i, j: s + PLACES[i] @ OTHER[j],
    ],
)
def test_score_mod_product_counts_per_score(score_mod):
    found = count_macs(flexed(score_mod), Q, K)
    assert found.with_elementwise == ATTENTION + B * H * T * 11 * 5


def test_score_mod_without_product():
    bias, slopes = torch.ones(T, 11), torch.ones(H)
    for score_mod in (lambda s, b, h, i, j: s + bias[i, j], lambda s, b, h, i, j: s * slopes[h]):
        assert count_macs(flexed(score_mod), Q, K).with_elementwise == ATTENTION
    # The whole square: blocks are left out by kernels, not by what is asked of them.
    assert count_macs(flexed(mask=lambda b, h, i, j: i >= j), Q, K).with_elementwise == ATTENTION


# What tools see of transforms, of gradients inside a forward pass and of operators called by name.


def differentiated(a, b):
    with torch.enable_grad():
        x = a.detach().requires_grad_()
        return torch.autograd.grad((x @ b).sum(), x)[0]


def inferred(a, b):
    with torch.inference_mode():
        return F.linear(a, b.mT)


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (lambda a, b: torch.vmap(lambda x: x @ b)(a), [(7, 13), (13, 11)], 1001),
        (lambda x, w: torch.vmap(lambda x: F.conv1d(x[None], w))(x), [(2, 3, 9), (5, 3, 3)], 630),
        (differentiated, [(7, 13), (13, 11)], 2002),
        (lambda a, b: torch.ops.aten.mm.default(a, b), [(7, 13), (13, 11)], 1001),
        (inferred, [(7, 13), (13, 11)], 1001),
        (lambda a, b: torch.compile(lambda a, b: a @ b)(a, b), [(7, 13), (13, 11)], 1001),
    ],
)
def test_every_count_is_explained(function, shapes, macs):
    found = read(module(function), [torch.ones(shape) for shape in shapes], label="called")
    assert found.right.macs == macs
    assert all(cell.explained for cell in found.counters), found.counters


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projected_lstm_is_explained():
    found = read(nn.LSTM(13, 11, proj_size=5), [torch.ones(5, 2, 13)], label="projected")
    assert found.right.macs == 5 * 2 * 4 * 11 * (13 + 5) + 5 * 2 * 11 * 5
    assert all(cell.explained for cell in found.counters), found.counters
