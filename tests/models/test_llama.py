"""The language model against its equations, decoding with caches, and its two forms of MoH."""

import math

import pytest
import torch

from headcount.models import losses
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.kernels.selection import missing, select_impl

SIZES = dict(model="llama", d_model=15, d_ff=17, num_layers=3, vocab_size=19)
MHA = dict(attention="mha", num_heads=6, num_kv_heads=2, head_dim=4, bias=False)
MOH = dict(attention="moh", num_heads=6, num_shared_heads=2, top_k=3, num_kv_heads=2, head_dim=4)
NORM = MOH | dict(router="query_norm")
UNEVEN = MOH | dict(num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 2, 0))
CASES = {
    "mha": SIZES | MHA, "moh": SIZES | MOH, "query-norm": SIZES | NORM, "uneven": SIZES | UNEVEN,
    "one-layer": SIZES | MHA | dict(num_layers=1),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES)


def made(values, length=7):
    config = make_config(values)
    inputs = example_inputs(config, {"batch_size": 2, "seq_len": length})
    return build(config, dtype=torch.float64), inputs["tokens"]


def rms_norm(x, weight):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * weight


@torch.no_grad()
def test_the_dense_model_is_its_equations():
    model, tokens = made(CASES["mha"])
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    x = model.embedding.weight[tokens]
    for layer in model.layers:
        a, f = layer.self_attn, layer.feed_forward
        y = rms_norm(x, layer.self_attn_norm.weight)

        def turned(z, heads):
            z = z.view(2, 7, heads, 4).clone()
            for t in range(7):
                for i in range(2):
                    angle = t * 500000.0 ** (-2 * i / 4)
                    one, two = z[:, t, :, i].clone(), z[:, t, :, i + 2].clone()
                    z[:, t, :, i] = one * math.cos(angle) - two * math.sin(angle)
                    z[:, t, :, i + 2] = two * math.cos(angle) + one * math.sin(angle)
            return z

        q, k = turned(y @ a.q_proj.weight.t(), 6), turned(y @ a.k_proj.weight.t(), 2)
        v = (y @ a.v_proj.weight.t()).view(2, 7, 2, 4)
        k, v = k.repeat_interleave(3, 2), v.repeat_interleave(3, 2)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / 2
        scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf)
        heads = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
        x = x + heads.flatten(2) @ a.out_proj.weight.t()
        y = rms_norm(x, layer.feed_forward_norm.weight)
        gate, up = y @ f.gate_proj.weight.t(), y @ f.up_proj.weight.t()
        x = x + (gate * torch.sigmoid(gate) * up) @ f.down_proj.weight.t()
    expected = rms_norm(x, model.norm.weight) @ model.output_proj.weight.t()
    # the rotary table is made in float32
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)


@every_case
@torch.no_grad()
def test_decoding_with_caches_is_the_whole_forward(case):
    model, tokens = made(CASES[case])
    caches = model.make_caches(2, 7)
    steps = [model(tokens[:, :3], caches=caches)] + [model(tokens[:, t : t + 1], caches=caches) for t in range(3, 7)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="^the cache has room for 7 tokens, not 8$"):
        model(tokens[:, :1], caches=caches)
    with pytest.raises(ValueError, match="^padding_mask is for whole sequences: with caches every token is real$"):
        model(tokens, torch.zeros(2, 7, dtype=torch.bool), caches)


@every_case
@torch.no_grad()
def test_logits_do_not_depend_on_later_tokens(case):
    model, tokens = made(CASES[case])
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 19
    assert torch.equal(model(tokens)[:, :4], model(changed)[:, :4])
    assert not torch.equal(model(tokens)[:, 4:], model(changed)[:, 4:])


@pytest.mark.parametrize("case", ["moh", "query-norm", "uneven"])
def test_dense_and_sparse_models_agree_forward_and_backward(case):
    def result(moh_form, arm):
        model, tokens = made(CASES[case] | dict(form=moh_form))
        select_impl(model, arm)
        out = model.train()(tokens)
        loss = out.square().mean() + losses.auxiliary_loss(model)
        loss.backward()
        return [out, loss], {name: p.grad for name, p in model.named_parameters()}

    config = make_config(CASES[case])
    arms = [arm for arm in config.layers[0].implementations if not missing(arm, torch.device("cpu"))]
    assert {arm.gradient for arm in arms} == {None, "ideal"}
    sparse, gradients = result("ideal", "reference")
    for arm in arms:
        outputs, found = result("released", arm.name)
        torch.testing.assert_close(outputs, sparse, rtol=1e-9, atol=1e-11)
        if case != "query-norm" or arm.gradient:
            torch.testing.assert_close(found, gradients, rtol=1e-9, atol=1e-11)
        else:
            # scores of unselected heads have a gradient too (Eq. 10)
            queries = "layers.0.self_attn.q_proj.weight"
            assert not torch.allclose(found[queries], gradients[queries], rtol=1e-3)


def test_statistics_are_of_the_layers_that_route():
    model, tokens = made(CASES["uneven"])
    losses.record_routing(model)
    model(tokens)
    counts = losses.tokens_per_expert(model)
    assert {path: count.sum().item() for path, count in counts.items()} == {
        "layers.0.self_attn": 14 * 3,
        "layers.1.self_attn": 14 * 2,
    }
    assert [len(count) for count in counts.values()] == [4, 3]


def test_training_reaches_every_parameter():
    model, tokens = made(SIZES | MOH)
    model.train()(tokens).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_norms_start_at_one_and_weights_depend_on_the_seed():
    config = make_config(CASES["moh"])
    first, again, other = build(config), build(config), build(config, seed=1)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
        assert weight.eq(1).all() if "norm" in name else not torch.equal(weight, other.state_dict()[name])
    assert build(config, dtype=torch.bfloat16)(made(CASES["moh"])[1]).dtype == torch.bfloat16


def test_configs_that_cannot_be_built():
    rotary = ", ".join(sorted(name for name, attention in ATTENTIONS.items() if attention.rotary))
    assert "mha" in rotary and "mae" not in rotary
    for delta, message in (
        (
            dict(attention="mae", num_heads=3),
            f"attention must be one of {rotary}, not 'mae'; did you mean moa, mla or mha?",
        ),
        (MHA | dict(head_dim=5), "head_dim must be even for rotary positions, not 5"),
        (UNEVEN | dict(top_k=(3, 4, 0)), "layer 1: top_k must lie in 0..num_heads - num_shared_heads = 0..3, not 4"),
        (MHA | dict(num_layers=0), "num_layers must be at least 1, not 0"),
    ):
        with pytest.raises(ConfigError) as raised:
            make_config(SIZES | delta)
        assert str(raised.value) == message
    assert make_config(CASES["uneven"]).layers[1].num_heads == 4
