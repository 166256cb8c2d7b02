"""Decoding with a cache gives what one pass over all tokens gives, token by token and in chunks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.build import build
from headcount.models.cache import KeyValueCache
from headcount.models.configs.make import make_config
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.configs.moh import MixtureOfHeadAttentionConfig

MOH = dict(d_model=13, num_heads=6, num_shared_heads=2, top_k=3, num_kv_heads=3, head_dim=5, bias=True)
LAYERS = {
    "moa-K3-E7-dm11-D5": MixtureOfAttentionHeadsConfig(d_model=11, num_experts=7, top_k=3, head_dim=5, bias=True),
    "moa-K5-E5-dm11-D3": MixtureOfAttentionHeadsConfig(d_model=11, num_experts=5, top_k=5, head_dim=3),
    "moa-K3-E7-dm11-D10-g2": MixtureOfAttentionHeadsConfig(
        d_model=11, num_experts=7, top_k=3, head_dim=10, num_kv_heads=2, gates="selected", output_bias=True
    ),
    "mha-h3-g3-dm15": MultiHeadAttentionConfig(d_model=15, num_heads=3),
    "gqa-h6-g2-dm13-D5": MultiHeadAttentionConfig(d_model=13, num_heads=6, num_kv_heads=2, head_dim=5),
    "mqa-h7-g1-dm11-D3": MultiHeadAttentionConfig(d_model=11, num_heads=7, num_kv_heads=1, head_dim=3),
    "moh-h6-s2-r3-g3-dm13-D5": MixtureOfHeadAttentionConfig(**MOH),
    "moh-norm-h6-s2-r3-g3-dm13-D5": MixtureOfHeadAttentionConfig(**MOH, router="query_norm"),
    "moh-ideal-h6-s2-r3-g3-dm13-D5": MixtureOfHeadAttentionConfig(**MOH, form="ideal"),
    "moh-norm-ideal-h6-s2-r3-g3-dm13-D5": MixtureOfHeadAttentionConfig(**MOH, router="query_norm", form="ideal"),
}
CASES = [
    (case, name)
    for case, config in LAYERS.items()
    for name in (*(impl.name for impl in config.implementations if impl.masks and not impl.package), "auto")
]
CHUNKS = {"one-by-one": [1] * 13, "prefill-then-one-by-one": [7, 1, 1, 1, 1, 1, 1], "chunks": [5, 1, 4, 3]}
MODEL = dict(
    model="encoder_decoder", d_model=14, d_ff=13, num_encoder_layers=2, num_decoder_layers=2, vocab_size=17
)  # fmt: skip
MODELS = {
    "mha": dict(MODEL, attention="mha", num_heads=2),
    "gqa": dict(MODEL, attention="mha", num_heads=6, num_kv_heads=2, head_dim=5),
    "moa-K3-E7": dict(MODEL, attention="moa", num_experts=7, top_k=3, head_dim=5),
    "moa-K5-E5": dict(MODEL, attention="moa", num_experts=5, top_k=5, head_dim=3),
}


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("case, impl", CASES)
@torch.no_grad()
def test_layer_decoding_equals_causal_pass(case, impl, sizes):
    layer = build(LAYERS[case], dtype=torch.float64)
    x = torch.randn(3, 13, layer.config.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = layer(x, causal=True)
    layer.impl = impl
    cache = layer.make_cache(3, 17)
    pieces = []
    for chunk in x.split(sizes, dim=1):
        pieces.append(layer(chunk, cache=cache))
    close(torch.cat(pieces, dim=1), expected)
    assert cache.length == 13


@pytest.mark.parametrize("case, impl", CASES)
@torch.no_grad()
def test_left_padding_stays_hidden_while_decoding(case, impl):
    layer = build(LAYERS[case], dtype=torch.float64, impl=impl)
    x = torch.randn(2, 11, layer.config.d_model, dtype=torch.float64)
    padding = torch.arange(11) < torch.tensor([[0], [3]])
    cache = layer.make_cache(2, 11)
    pieces = []
    for start, stop in ((0, 5), (5, 6), (6, 11)):
        masks = dict(key_padding_mask=padding[:, :stop], query_padding_mask=padding[:, start:stop])
        pieces.append(layer(x[:, start:stop], cache=cache, **masks))
    decoded = torch.cat(pieces, dim=1)
    close(decoded[0], layer(x[:1], causal=True)[0])
    close(decoded[1, 3:], layer(x[1:, 3:], causal=True)[0])
    assert not decoded[1, :3].any()


@pytest.mark.parametrize("case, impl", CASES)
@torch.no_grad()
def test_filled_cache_equals_keys(case, impl):
    layer = build(LAYERS[case], dtype=torch.float64, impl=impl)
    query, key = (torch.randn(3, n, layer.config.d_model, dtype=torch.float64) for n in (5, 13))
    padding = torch.arange(13) >= torch.tensor([[13], [11], [2]])
    expected = layer(query, key, key_padding_mask=padding)
    cache = layer.fill_cache(key)
    close(layer(query, key_padding_mask=padding, cache=cache), expected)
    close(layer(query[:, 3:], key_padding_mask=padding, cache=cache), expected[:, 3:])
    assert cache.closed and cache.length == 13


@pytest.mark.parametrize("case", LAYERS)
def test_cache_shape_and_dtype(case):
    layer = build(LAYERS[case], dtype=torch.bfloat16)
    heads = getattr(layer.config, "num_kv_heads", 1)
    cache = layer.make_cache(3, 17)
    width = getattr(layer.config, "kv_head_dim", layer.config.head_dim)
    assert cache.key.shape == cache.value.shape == (3, 17, heads, width)
    assert cache.key.dtype == torch.bfloat16 and cache.num_bytes == 0
    layer(torch.zeros(3, 5, layer.config.d_model, dtype=torch.bfloat16), cache=cache)
    assert cache.num_bytes == 2 * 3 * 5 * heads * width * 2
    other = layer.make_cache(1, 2, device="meta", dtype=torch.float64)
    assert other.key.is_meta and other.value.dtype == torch.float64
    assert build(LAYERS[case], device="meta").make_cache(1, 2).key.is_meta


def test_full_cache_raises():
    layer = build(LAYERS["mha-h3-g3-dm15"])
    cache = layer.make_cache(1, 3)
    layer(torch.zeros(1, 2, 15), cache=cache)
    with pytest.raises(ValueError, match="^the cache has room for 3 tokens, not 4$"):
        layer(torch.zeros(1, 2, 15), cache=cache)
    assert cache.length == 2


def test_closed_cache_and_key_with_cache_raise():
    layer = build(LAYERS["mha-h3-g3-dm15"])
    x = torch.zeros(1, 2, 15)
    cache = layer.fill_cache(x)
    with pytest.raises(ValueError, match="^the cache is closed and takes no more tokens$"):
        cache.append(cache.key, cache.value)
    message = r"^give key or cache, not both; layer.fill_cache\(key\) makes a cache of keys$"
    with pytest.raises(ValueError, match=message):
        layer(x, x, cache=cache)


def test_cache_carries_no_gradient():
    cache = KeyValueCache(1, 3, (1, 5), (1, 5))
    new = torch.ones(1, 1, 1, 5, requires_grad=True)
    key, value = cache.append(new, new)
    assert not key.requires_grad and not value.requires_grad


def translator(case, impl="reference"):
    model = build(make_config(MODELS[case]), dtype=torch.float64, impl=impl, seed=3)
    generator = torch.Generator().manual_seed(5)
    src, tgt = (torch.randint(17, (3, n), generator=generator) for n in (11, 13))
    return model, src, tgt


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("impl", ["reference", "auto"])
@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_step_logits_equal_full_forward(case, impl, sizes):
    model, src, tgt = translator(case)
    padding = torch.arange(11) >= torch.tensor([[11], [7], [2]])
    expected = model(src, tgt, padding)
    model, *_ = translator(case, impl)
    state = model.encode(src, padding, max_len=13)
    logits = [model.step(state, chunk) for chunk in tgt.split(sizes, dim=1)]
    close(torch.cat(logits, dim=1), expected)
    assert state.length == 13


class Products(TorchDispatchMode):
    """Rows of the first operand of every matrix product."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("mm", "addmm"):
            self.rows.append(args[-2].shape[0])
        return func(*args, **(kwargs or {}))


def test_step_does_not_project_source_again():
    model, src, tgt = translator("mha")
    state = model.encode(src, max_len=13)
    counted = Products()
    with counted:
        model.step(state, tgt[:, :1])
    # 3 sequences of one token; 4 products of self-attention, 2 of cross-attention, 2 of the feed-forward, 1 output
    assert counted.rows == [3] * (2 * (4 + 2 + 2) + 1)


@pytest.mark.parametrize("impl", ["reference", "auto"])
@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_greedy_takes_most_likely_token(case, impl):
    model, src, _ = translator(case, impl)
    tokens = model.greedy(src, start_token=1, num_tokens=7)
    assert tokens.shape == (3, 7)
    fed = torch.cat([torch.ones(3, 1, dtype=torch.int64), tokens[:, :-1]], dim=1)
    assert torch.equal(model(src, fed).argmax(-1), tokens)


@torch.no_grad()
def test_greedy_ignores_padded_source_tokens():
    model, src, _ = translator("mha")
    padded = torch.cat([src, src[:, :2]], dim=1)
    padding = (torch.arange(padded.shape[1]) >= src.shape[1]).expand(len(src), -1)
    given = dict(start_token=1, num_tokens=7)
    assert torch.equal(model.greedy(padded, src_padding_mask=padding, **given), model.greedy(src, **given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cache_dtype_under_autocast(dtype):
    """Under autocast that is not the weights'."""
    (first, *_), memory = build(make_config(MODELS["gqa"])).decoder.layers, torch.zeros(2, 3, 14, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        caches = first.make_caches(memory, 7)
    for cache in (caches.own, caches.cross_attn):
        assert (cache.key.dtype, cache.value.dtype) == (dtype, dtype)
