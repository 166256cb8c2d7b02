"""A small model learns to copy, and the balance loss undoes a collapsed router while it does.

Task: six random words and six blanks; the blanks are to be filled with the words. Both runs have the same
weights, batches and hyperparameters, and differ in alpha alone.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.models import losses
from headcount.models.build import build
from headcount.models.configs.make import make_config

NUM_EXPERTS, TOP_K, D_MODEL, VOCAB_SIZE, SEQ_LEN, STEPS = 8, 2, 32, 16, 12, 150
BALANCED, BOUND = TOP_K / NUM_EXPERTS, 2 * TOP_K / NUM_EXPERTS


def batches(seed, size):
    generator = torch.Generator().manual_seed(seed)
    while True:
        words = torch.randint(1, VOCAB_SIZE, (size, SEQ_LEN // 2), generator=generator)
        yield torch.cat((words, torch.zeros_like(words)), dim=1), words


def collapsed_model(alpha):
    """The same K experts win for all tokens: their router weights share a direction that every token has."""
    sizes = {"d_model": D_MODEL, "d_ff": 64, "head_dim": 16, "num_experts": NUM_EXPERTS, "top_k": TOP_K}
    lengths = {"num_layers": 2, "vocab_size": VOCAB_SIZE, "max_positions": SEQ_LEN + 2}
    weights = {"balance_loss_weight": alpha, "z_loss_weight": 0.0}
    model = build(make_config({"model": "masked_lm", "attention": "moa", **sizes, **lengths, **weights}))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.bias.fill_(1.0)  # the mean over features of every token
        for _, layer in losses.routed_modules(model):
            layer.router.proj.weight[:TOP_K] += 6 / D_MODEL
    return model


@torch.no_grad()
def evaluate(model):
    """Accuracy, and the largest fraction of tokens that select one expert, on held-out sequences."""
    model.eval()
    losses.record_routing(model)
    tokens, words = next(batches(seed=2, size=256))
    accuracy = (model(tokens)[:, SEQ_LEN // 2 :].argmax(-1) == words).double().mean().item()
    share = max((counts.max() / tokens.numel()).item() for counts in losses.tokens_per_expert(model).values())
    losses.record_routing(model, False)
    return accuracy, share


def train(model):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = batches(seed=1, size=64)
    for _ in range(STEPS):
        tokens, words = next(data)
        logits = model(tokens)[:, SEQ_LEN // 2 :]
        loss = F.cross_entropy(logits.flatten(0, 1), words.flatten()) + losses.auxiliary_loss(model)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@pytest.fixture(scope="module")
def runs():
    """alpha -> (accuracy, largest share) before and after training."""
    out = {}
    for alpha in (0.01, 0.0):
        model = collapsed_model(alpha)
        before = evaluate(model)
        train(model)
        out[alpha] = before, evaluate(model)
    return out


@pytest.mark.parametrize("alpha", [0.01, 0.0])
def test_copying_is_learnt_from_scratch(runs, alpha, figure):
    (untrained, _), (accuracy, _) = runs[alpha]
    figure(f"copy task, alpha {alpha}: accuracy {untrained:.3f} before, {accuracy:.4f} after {STEPS} steps")
    assert untrained < 0.2
    assert accuracy >= 0.99


def test_balance_loss_brings_a_collapsed_router_below_twice_the_balanced_share(runs, figure):
    shares = {alpha: (before[1], after[1]) for alpha, (before, after) in runs.items()}
    for alpha, (before, after) in shares.items():
        figure(f"collapsed router, alpha {alpha}: largest share {before:.3f} to {after:.3f}; balanced is {BALANCED}")
    assert shares[0.01][0] == shares[0.0][0] == 1.0
    assert shares[0.01][1] < BOUND
    assert shares[0.01][1] < shares[0.0][1] - 0.25
