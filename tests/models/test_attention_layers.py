"""A layer equals a plain loop over batch, token and head in float64: its output and every gradient."""

import math
from dataclasses import replace

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moa import Gates, MixtureOfAttentionHeadsConfig

BATCH, TGT, SRC = 2, 5, 7

MHA = [
    MultiHeadAttentionConfig(d_model=13, num_heads=h, num_kv_heads=g, head_dim=d_h, bias=bias)
    for h, g, d_h in ((3, 3, 5), (1, 1, 7), (6, 3, 5), (6, 2, 5), (3, 1, 7))
    for bias in (False, True)
]
MOA = [
    MixtureOfAttentionHeadsConfig(d_model=13, num_experts=e, top_k=k, head_dim=d, bias=bias, gates=gates)
    for k, e, d in ((3, 11, 5), (2, 3, 7), (5, 5, 3), (1, 7, 5), (1, 1, 5))
    for bias in (False, True)
    for gates in Gates
]
MODES = ("self", "causal", "cross", "cross-padded", "causal-padded")


def layer_id(config):
    bias = "-bias" if config.bias else ""
    if isinstance(config, MultiHeadAttentionConfig):
        return f"h{config.num_heads}-g{config.num_kv_heads}-dh{config.head_dim}-dm{config.d_model}{bias}"
    return f"K{config.top_k}-E{config.num_experts}-D{config.head_dim}-dm{config.d_model}{bias}-{config.gates}"


def naive_softmax(scores):
    exponentials = [torch.exp(score) for score in scores]
    return [e / sum(exponentials) for e in exponentials]


def naive_attention(q, keys, values):
    """One query vector over the keys that it may see."""
    if not keys:
        return torch.zeros_like(q)
    weights = naive_softmax([torch.dot(q, k) / math.sqrt(len(q)) for k in keys])
    return sum(w * v for w, v in zip(weights, values, strict=True))


def affine(p, name, x, rows=slice(None)):
    y = p[f"{name}.weight"][rows] @ x
    return y + p[f"{name}.bias"][rows] if f"{name}.bias" in p else y


def expert_affine(p, name, x, expert):
    y = x @ p[f"{name}.weight"][expert]
    return y + p[f"{name}.bias"][expert] if f"{name}.bias" in p else y


def naive_mha(config, p, x, keys):
    d, group = config.head_dim, config.num_heads // config.num_kv_heads
    heads = []
    for head in range(config.num_heads):
        rows = slice(head * d, (head + 1) * d)
        kv_rows = slice(head // group * d, (head // group + 1) * d)
        k = [affine(p, "k_proj", key, kv_rows) for key in keys]
        v = [affine(p, "v_proj", key, kv_rows) for key in keys]
        heads.append(naive_attention(affine(p, "q_proj", x, rows), k, v))
    return affine(p, "out_proj", torch.cat(heads))


def naive_moa(config, p, x, keys, gates=None):
    gates = gates or config.gates
    probs = naive_softmax(list(p["router.proj.weight"] @ x))
    chosen = sorted(range(config.num_experts), key=lambda i: -probs[i].item())[: config.top_k]
    denominator = torch.ones_like(probs[0]) if gates == "released" else sum(probs[i] for i in chosen)
    if gates == "printed":
        denominator = denominator.detach()
    k = [affine(p, "k_proj", key) for key in keys]
    v = [affine(p, "v_proj", key) for key in keys]
    y = 0
    for i in chosen:
        o = naive_attention(expert_affine(p, "q_proj", x, i), k, v)
        y = y + probs[i] / denominator * expert_affine(p, "out_proj", o, i)
    return y


def naive_layer(token, config, p, query, key, causal, key_padding, query_padding):
    """``token`` applied to each query with the list of keys that it may see."""
    out = []
    for b in range(len(query)):
        row = []
        for t in range(query.shape[1]):
            seen = [
                key[b, s]
                for s in range(key.shape[1])
                if not (causal and s > t) and not (key_padding is not None and key_padding[b, s])
            ]
            padded = query_padding is not None and query_padding[b, t]
            row.append(torch.zeros_like(query[b, t]) if padded else token(config, p, query[b, t], seen))
        out.append(torch.stack(row))
    return torch.stack(out)


def make_case(config, mode, seed=0):
    """A layer in float64 with no weight at zero, and its inputs and masks for ``mode``."""
    layer = build(config, dtype=torch.float64, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    lengths = {"batch_size": BATCH, "tgt_len": TGT, "src_len": SRC}
    inputs = example_inputs(config, lengths, dtype=torch.float64, seed=seed)
    query = inputs["query"].requires_grad_()
    key = inputs["key"].requires_grad_() if mode.startswith("cross") else None
    masks = {"causal": mode.startswith("causal")}
    if mode.endswith("padded"):
        key_padding = torch.zeros(BATCH, SRC if key is not None else TGT, dtype=torch.bool)
        key_padding[0, -2:] = True
        key_padding[1, 0] = True  # leaves the first causal query without any key
        query_padding = torch.zeros(BATCH, TGT, dtype=torch.bool)
        query_padding[0, 3:] = True
        masks |= {"key_padding_mask": key_padding, "query_padding_mask": query_padding}
    return layer, query, key, masks


def run_naive(token, layer, query, key, masks):
    return naive_layer(
        token,
        layer.config,
        dict(layer.named_parameters()),
        query,
        query if key is None else key,
        masks["causal"],
        masks.get("key_padding_mask"),
        masks.get("query_padding_mask"),
    )


def gradients(out, layer, query, key):
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    leaves = dict(layer.named_parameters()) | {"query": query} | ({} if key is None else {"key": key})
    # an expert that nobody chose, or a layer of one expert, leaves a weight out of the loop's graph
    grads = torch.autograd.grad((out * weights).sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("config", MHA + MOA, ids=layer_id)
def test_layer_and_gradients_equal_the_loop(config, mode):
    layer, query, key, masks = make_case(config, mode)
    token = naive_mha if isinstance(config, MultiHeadAttentionConfig) else naive_moa
    expected = run_naive(token, layer, query, key, masks)
    out = layer(query, key, **masks)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        gradients(out, layer, query, key),
        gradients(expected, layer, query, key),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("config", [MHA[0], MHA[6], MOA[0], MOA[6]], ids=layer_id)
def test_attention_dropout_only_in_training(config, causal):
    layer, query, _, _ = make_case(replace(config, attention_dropout=0.4), "self")
    plain, _, _, _ = make_case(config, "self")
    expected = plain(query, causal=causal)
    torch.testing.assert_close(layer(query, causal=causal), expected, rtol=0, atol=0)
    layer.train()
    torch.manual_seed(3)
    assert (layer(query, causal=causal) - expected).abs().max() > 0.01
    # dropped weights are rescaled, and everything after them is linear: the mean over draws is the plain output
    with torch.no_grad():
        draws = [layer(query.repeat(500, 1, 1), causal=causal).unflatten(0, (500, BATCH)) for _ in range(6)]
        mean = torch.cat(draws).mean(0)
    assert (mean - expected).abs().max() < 0.08 * expected.abs().max()


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 10**9])
@pytest.mark.parametrize("config", [MOA[0], MOA[3], MOA[15]], ids=layer_id)
def test_chunks_keep_output_and_gradient(config, chunk_bytes, monkeypatch):
    layer, query, key, masks = make_case(config, "cross")
    whole = layer(query, key)
    expected = gradients(whole, layer, query, key)
    products = []
    bmm = torch.bmm
    monkeypatch.setattr("headcount.models.experts.GATHERED_BYTES", chunk_bytes)
    monkeypatch.setattr(torch, "bmm", lambda a, b: products.append(len(a)) or bmm(a, b))
    chunked = layer(query, key)
    rows = BATCH * TGT * config.top_k
    per_chunk = max(1, chunk_bytes // (config.d_model * config.head_dim * 8))
    assert sum(products) == 2 * rows
    assert len(products) == 2 * math.ceil(rows / per_chunk)
    torch.testing.assert_close(chunked, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(chunked, layer, query, key), expected, rtol=1e-12, atol=1e-12)
