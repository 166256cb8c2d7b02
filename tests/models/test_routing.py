"""The router against a loop, its noise, losses and counts."""

import math

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.configs.moa import Gates
from headcount.models.router import TopKRouter

# (batch, tokens, top_k, num_experts)
SIZES = [(2, 5, 3, 11), (3, 7, 1, 5), (1, 13, 5, 5), (2, 3, 1, 1)]
IDS = [f"B{b}-T{t}-K{k}-E{e}" for b, t, k, e in SIZES]
D_MODEL = 13

SMALL = {"attention": "moa", "d_model": 14, "num_experts": 5, "top_k": 3, "head_dim": 7, "d_ff": 11, "vocab_size": 17}
ENCODER_DECODER = make_config({**SMALL, "model": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 1})
MASKED_LM = make_config({**SMALL, "model": "masked_lm", "num_layers": 2, "max_positions": 19})


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def made_up(batch, tokens, top_k, num_experts, padded=False):
    """Logits, probabilities and the chosen experts of a routing that no router made, and a padding mask."""
    logits = 2 * torch.randn(batch, tokens, num_experts, generator=seeded(), dtype=torch.float64)
    probs = logits.exp() / logits.exp().sum(-1, keepdim=True)
    indices = torch.stack([torch.randperm(num_experts, generator=seeded(n))[:top_k] for n in range(batch * tokens)])
    mask = None
    if padded:
        mask = torch.zeros(batch, tokens, dtype=torch.bool)
        mask[0, 1:] = True
    return logits.requires_grad_(), probs, indices.view(batch, tokens, top_k), mask


def real_tokens(batch, tokens, mask):
    return [(b, t) for b in range(batch) for t in range(tokens) if mask is None or not mask[b, t]]


def make_router(batch, tokens, top_k, num_experts, **options):
    router = TopKRouter(D_MODEL, num_experts, top_k, **options).double().eval()
    with torch.no_grad():
        for n, parameter in enumerate(router.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=seeded(n)))
    return router, torch.randn(batch, tokens, D_MODEL, generator=seeded(7), dtype=torch.float64)


@pytest.mark.parametrize("gates", Gates)
@pytest.mark.parametrize("sizes", SIZES, ids=IDS)
def test_routing_matches_loop(sizes, gates):
    batch, tokens, top_k, num_experts = sizes
    router, x = make_router(*sizes, gates=gates)
    routing = router(x)
    for b, t in real_tokens(batch, tokens, None):
        logits = [float(torch.dot(x[b, t], w)) for w in router.proj.weight.detach()]
        probs = [math.exp(z) / sum(map(math.exp, logits)) for z in logits]
        best = sorted(range(num_experts), key=lambda i: -probs[i])[:top_k]
        total = 1 if gates is Gates.RELEASED else sum(probs[i] for i in best)
        assert routing.indices[b, t].tolist() == best
        assert routing.weights[b, t].tolist() == pytest.approx([probs[i] / total for i in best], rel=1e-12)
        assert routing.logits[b, t].tolist() == pytest.approx(logits, rel=1e-10)
        assert routing.probs[b, t].tolist() == pytest.approx(probs, rel=1e-10)


def test_noise_scale_and_absence_in_eval():
    router, x = make_router(3, 1009, 2, 7, noisy=True)
    clean, again = router(x).logits, router(x).logits
    assert torch.equal(clean, again)
    torch.testing.assert_close(clean, x @ router.proj.weight.T)
    router.train()
    torch.manual_seed(0)
    noisy = router(x)
    scale = torch.log1p(torch.exp(x @ router.noise_proj.weight.T))
    noise = ((noisy.logits - clean) / scale).detach()
    low = scale < scale.median()
    for part in (noise[low], noise[~low]):
        assert abs(part.mean()) < 4 / len(part) ** 0.5
        assert abs(part.std() - 1) < 4 / (2 * len(part)) ** 0.5
        # a standard normal leaves 4.55 % outside two sigma
        assert (part.abs() > 2).double().mean() == pytest.approx(0.0455, abs=0.01)
    assert not torch.equal(router(x).logits, noisy.logits)
    assert torch.equal(noisy.indices, noisy.logits.topk(2).indices)


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("sizes", SIZES, ids=IDS)
def test_losses_and_counts_match_loops(sizes, padded):
    batch, tokens, _, num_experts = sizes
    logits, probs, indices, mask = made_up(*sizes, padded)
    real = real_tokens(batch, tokens, mask)
    f = [sum(i in indices[token].tolist() for token in real) for i in range(num_experts)]
    p = [sum(probs[token][i].item() for token in real) for i in range(num_experts)]
    balance = num_experts * sum(fi / sum(f) * pi / sum(p) for fi, pi in zip(f, p, strict=True))
    z = sum(math.log(sum(map(math.exp, logits[token].tolist()))) ** 2 for token in real) / len(real)
    assert losses.expert_counts(indices, num_experts, mask).tolist() == f
    assert losses.balance_loss(probs, indices, mask).item() == pytest.approx(balance, rel=1e-12)
    assert losses.z_loss(logits, mask).item() == pytest.approx(z, rel=1e-12)


def test_balance_loss_limits():
    num_experts, top_k = 12, 3
    tokens = torch.arange(num_experts)
    balanced = torch.stack([(tokens + i) % num_experts for i in range(top_k)], dim=-1)[None]
    uniform = torch.full((1, num_experts, num_experts), 1 / num_experts)
    assert losses.balance_loss(uniform, balanced).item() == pytest.approx(1)
    collapsed = torch.arange(top_k).expand(1, num_experts, top_k)
    certain = torch.zeros(1, num_experts, num_experts)
    certain[..., :top_k] = 1 / top_k
    assert losses.balance_loss(certain, collapsed).item() == pytest.approx(num_experts / top_k)


def test_balance_loss_gradient():
    batch, tokens, top_k, num_experts = SIZES[0]
    _, probs, indices, _ = made_up(*SIZES[0])
    probs = probs.detach().requires_grad_()
    (grad,) = torch.autograd.grad(losses.balance_loss(probs, indices), probs)
    f = losses.expert_counts(indices, num_experts).double() / (batch * tokens * top_k)
    # d/dp of N f.P/|P|, with |P| the number of tokens
    total = batch * tokens
    expected = num_experts * (f - (f * probs.sum((0, 1)) / total).sum()) / total
    torch.testing.assert_close(grad, expected.detach().expand_as(grad))


def test_losses_of_padding_alone_are_zero():
    logits, probs, indices, mask = made_up(2, 5, 3, 11, padded=True)
    (grad,) = torch.autograd.grad(losses.z_loss(logits, mask), logits)
    assert torch.equal((grad != 0).any(-1), ~mask)
    everything = torch.ones_like(mask)
    assert losses.balance_loss(probs, indices, everything) == 0
    assert losses.z_loss(logits, everything) == 0
    assert losses.expert_counts(indices, 11, everything).sum() == 0


def test_half_precision_losses_are_float32():
    logits, probs, indices, _ = made_up(3, 1009, 3, 11)
    for loss, x, rest in ((losses.balance_loss, probs, (indices,)), (losses.z_loss, logits, ())):
        value = loss(x.bfloat16(), *rest)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(loss(x.bfloat16().double(), *rest).item(), rel=1e-5)


def model_and_inputs(config, **lengths):
    model = build(config, dtype=torch.float64)
    inputs = example_inputs(config, {"batch_size": 2, **lengths})
    return model, inputs


def test_tokens_per_expert_of_model():
    model, inputs = model_and_inputs(ENCODER_DECODER, src_len=7, tgt_len=5)
    model.train()
    src_padding = torch.tensor([[False] * 7, [False] * 3 + [True] * 4])
    tgt_padding = torch.tensor([[False] * 4 + [True], [False] * 5])
    model(**inputs, src_padding_mask=src_padding, tgt_padding_mask=tgt_padding)
    counts = losses.tokens_per_expert(model)
    assert {path: int(count.sum()) for path, count in counts.items()} == {
        "encoder.layers.0.self_attn": 3 * 10,
        "encoder.layers.1.self_attn": 3 * 10,
        "decoder.layers.0.self_attn": 3 * 9,
        "decoder.layers.0.cross_attn": 3 * 9,
    }
    assert all(count.shape == (5,) and count.dtype == torch.int64 for count in counts.values())


@pytest.mark.parametrize("config", [ENCODER_DECODER, MASKED_LM], ids=lambda config: config.variant)
def test_auxiliary_loss_sums_routed_blocks(config):
    model, inputs = model_and_inputs(config, src_len=7, tgt_len=5, seq_len=11)
    model.train()
    model(**inputs)
    expected, blocks = 0.0, 0
    for module in model.modules():
        if isinstance(module, TopKRouter):
            routing, _ = module.recorded
            expected += 0.01 * losses.balance_loss(routing.probs, routing.indices) + 0.001 * losses.z_loss(
                routing.logits
            )
            blocks += 1
    assert blocks == (4 if config is ENCODER_DECODER else 2)
    loss = losses.auxiliary_loss(model)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    loss.backward()
    trained = {name for name, p in model.named_parameters() if "router" in name and p.grad.norm() > 0}
    assert len(trained) == blocks


def test_dense_model_has_no_auxiliary_loss():
    dense = {k: v for k, v in SMALL.items() if k not in ("num_experts", "top_k")}
    sizes = {"num_heads": 2, "num_layers": 1, "max_positions": 19}
    config = make_config({**dense, **sizes, "attention": "mha", "model": "masked_lm"})
    model, inputs = model_and_inputs(config, seq_len=11)
    model.train()(**inputs)
    assert losses.auxiliary_loss(model) == 0
    assert losses.tokens_per_expert(model) == {}


def test_inference_records_routing_only_on_request():
    model, inputs = model_and_inputs(MASKED_LM, seq_len=11)
    for is_recording in (False, True, False):
        losses.record_routing(model, is_recording)
        model(**inputs)
        if is_recording:
            assert all(count.sum() == 3 * 2 * 11 for count in losses.tokens_per_expert(model).values())
            continue
        for function in (losses.auxiliary_loss, losses.tokens_per_expert):
            with pytest.raises(RuntimeError, match=r"^no routing recorded in encoder\.layers\.0\.self_attn; "):
                function(model)
