"""MLA and SwitchHead against loops over tokens, heads and experts; the forms of MLA against each other."""

import math

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.rotary import Rotary
from tests.cases import assert_close, padding, randomise

MLA = dict(attention="mla", d_model=13, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
SWITCHHEAD = dict(attention="switchhead", d_model=13, num_heads=3, head_dim=4, num_experts=7, top_k=2)
CASES = {
    "mla": MLA,
    "mla-query-latent-biased": MLA | dict(query_rank=17, bias=True),
    "mla-one-head": MLA | dict(num_heads=1, head_dim=1, value_dim=1, kv_rank=3),
    "mla-narrow-latent": MLA | dict(kv_rank=1, query_rank=1, rotary_dim=4),
    "switchhead-K2-E7": SWITCHHEAD,
    "switchhead-K1-E7": SWITCHHEAD | dict(top_k=1),
    "switchhead-K5-E5": SWITCHHEAD | dict(top_k=5, num_experts=5),
    "switchhead-K1-E1": SWITCHHEAD | dict(top_k=1, num_experts=1),
    "switchhead-one-head": SWITCHHEAD | dict(num_heads=1, head_dim=2),
}
LAYERS = [
    pytest.param(config, impl.name, id=f"{case}-{form['form']}-{impl.name}" if form else f"{case}-{impl.name}")
    for case, values in CASES.items()
    for form in ([dict(form="released"), dict(form="ideal")] if "mla" in case else [{}])
    for config in [make_config(values | form)]
    for impl in config.implementations
]


def rotate_pairs(x, position):
    """Rotate the pairs (i, i + d/2) by position / 10000^(2i/d); return ``x`` unchanged for position None."""
    if position is None:
        return x
    half, out = len(x) // 2, x.clone()
    for i in range(half):
        angle = position * 1e4 ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def normed(x, weight):
    return x / torch.sqrt(sum(value * value for value in x) / len(x) + 1e-6) * weight


class MLALoop:
    """Eq. 9-19: queries, keys and values of one token and one head, and the output of the heads of one token."""

    def __init__(self, layer, keys, rotary):
        self.config, self.parameters, self.rotary = layer.config, dict(layer.named_parameters()), rotary
        latents = [normed(self.product("kv_down_proj", x), self.parameters["kv_norm.weight"]) for x in keys]
        turned = [rotate_pairs(self.product("k_rotary_proj", x), j if rotary else None) for j, x in enumerate(keys)]
        self.latents = list(zip(latents, turned, strict=True))

    def product(self, name, x, rows=slice(None)):
        y = self.parameters[f"{name}.weight"][rows] @ x
        return y + self.parameters[f"{name}.bias"][rows] if f"{name}.bias" in self.parameters else y

    def query(self, x, t, i):
        config = self.config
        if config.query_rank is not None:
            x = normed(self.product("q_down_proj", x), self.parameters["q_norm.weight"])
        plain = self.product("q_proj", x, slice(i * config.head_dim, (i + 1) * config.head_dim))
        turned = self.product("q_rotary_proj", x, slice(i * config.rotary_dim, (i + 1) * config.rotary_dim))
        return torch.cat((plain, rotate_pairs(turned, t if self.rotary else None)))

    def key(self, j, i):
        latent, turned = self.latents[j]
        rows = slice(i * self.config.head_dim, (i + 1) * self.config.head_dim)
        return torch.cat((self.product("k_proj", latent, rows), turned))

    def value(self, j, i):
        rows = slice(i * self.config.value_dim, (i + 1) * self.config.value_dim)
        return self.product("v_proj", self.latents[j][0], rows)

    def output(self, x, heads):
        return self.product("out_proj", torch.cat(heads))


class SwitchHeadLoop:
    """The same of SwitchHead, whose values and outputs are sums over K experts of a head."""

    def __init__(self, layer, keys, rotary):
        self.layer, self.keys, self.rotary, self.d = layer, keys, rotary, layer.config.head_dim

    def mixed(self, name, head, routed, x):
        """The sum of the K experts of ``head`` with the highest scores at token ``routed``, each times its gate."""
        router, experts = self.layer.router[name], getattr(self.layer, name.replace("value", "v"))
        first, top_k = head * self.layer.config.num_experts, self.layer.config.top_k
        rows = router.weight[first : first + self.layer.config.num_experts]
        scores = [1 / (1 + math.exp(-torch.dot(row, routed).item())) for row in rows]
        chosen = sorted(range(len(scores)), key=lambda e: -scores[e])[:top_k]
        return sum(scores[e] * (x @ experts.weight[first + e]) for e in chosen)

    def query(self, x, t, i):
        return rotate_pairs(self.layer.q_proj.weight[i * self.d :][: self.d] @ x, t if self.rotary else None)

    def key(self, j, i):
        key = self.layer.k_proj.weight[i * self.d :][: self.d] @ self.keys[j]
        return rotate_pairs(key, j if self.rotary else None)

    def value(self, j, i):
        return self.mixed("value_proj", i, self.keys[j], self.keys[j])

    def output(self, x, heads):
        return sum(self.mixed("out_proj", i, x, head) for i, head in enumerate(heads))


def naive(layer, query, key=None, visible=lambda b, t, j: True, rotary=False):
    """The equations token by token and head by head; ``visible`` says which keys a query sees."""
    out = torch.zeros_like(query)
    for b in range(len(query)):
        keys = query[b] if key is None else key[b]
        loop = (MLALoop if layer.config.variant == "mla" else SwitchHeadLoop)(layer, keys, rotary)
        for t, x in enumerate(query[b]):
            seen, heads = [j for j in range(len(keys)) if visible(b, t, j)], []
            for i in range(layer.config.num_heads):
                q = loop.query(x, t, i)
                scores = torch.stack([q @ loop.key(j, i) for j in seen]) / math.sqrt(len(q))
                heads.append(sum(w * loop.value(j, i) for w, j in zip(torch.softmax(scores, 0), seen, strict=True)))
            out[b, t] = loop.output(x, heads)
    return out


def made(config, impl):
    """A float64 layer, and inputs (B, T, d_m) and (B, S, d_m)."""
    lengths = {"batch_size": 2, "tgt_len": 7, "src_len": 5}
    layer = randomise(build(config, dtype=torch.float64, impl=impl))
    return layer, *example_inputs(config, lengths, dtype=torch.float64).values()


@pytest.mark.parametrize("config, impl", LAYERS)
@torch.no_grad()
def test_outputs_match_loop(config, impl):
    layer, query, key = made(config, impl)
    assert_close(layer(query, key), naive(layer, query, key))


@pytest.mark.parametrize("config, impl", LAYERS)
@torch.no_grad()
def test_masks_and_rotary_match_loop(config, impl):
    layer, query, _ = made(config, impl)
    hidden = padding((5, 7), 7)
    pairs = torch.arange(0, config.rotary_width, 2, dtype=torch.float64)
    # in float64; the product computes it in float32
    angles = torch.arange(7)[:, None] * 1e4 ** (-pairs / config.rotary_width)
    rotary = Rotary(angles.cos(), angles.sin())
    out = layer(query, causal=True, key_padding_mask=hidden, query_padding_mask=hidden, rotary=rotary)
    expected = naive(layer, query, visible=lambda b, t, j: j <= t and not hidden[b, j], rotary=True)
    assert_close(out, expected.masked_fill(hidden[..., None], 0.0))


def test_default_sizes_are_of_the_paper():
    config = make_config(dict(attention="mla", d_model=5120, num_heads=40, query_rank=1536))
    sizes = (config.head_dim, config.rotary_dim, config.value_dim, config.kv_rank)
    assert sizes == (128, 64, 128, 512)
