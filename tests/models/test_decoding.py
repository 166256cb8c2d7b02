"""Whole models: decoding in steps gives the logits of one forward, and padded tokens have no influence."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.build import build
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS, assert_close, padding, randomise

TRANSLATORS = {
    name: values for name, values in MODEL_FIELDS.items() if values["model"] in ("encoder_decoder", "convolution")
}
TRANSLATORS["translation-moa-all-experts"] = MODEL_FIELDS["translation-moa"] | dict(top_k=7)
LANGUAGE_MODELS = ("llama", "jetmoe", "deepseek", "decoder")
DECODERS = {
    name: values
    for name, values in MODEL_FIELDS.items()
    if values["model"] in LANGUAGE_MODELS and "num_predicted" not in values
}
DECODERS["uneven"] = MODEL_FIELDS["llama-moh"] | dict(
    num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 2, 0)
)  # fmt: skip
IMPLS = {"translation-moa": ["gathered", "grouped", "dense-all", "loop"], "jetmoe": ["gathered", "grouped", "loop"]}
CHUNKS = [7, 1, 1, 1, 3]
"""Tokens of each step: a prefill, single tokens, and several at once."""
every_translator = pytest.mark.parametrize("case", TRANSLATORS)


def impls(cases):
    return [(case, impl) for case in cases for impl in ("reference", "auto", *IMPLS.get(case, []))]


def make_model(values, impl="reference"):
    """Return a float64 model without zero biases, and source and target tokens."""
    model = randomise(build(make_config(values), dtype=torch.float64, impl=impl, seed=3))
    generator = torch.Generator().manual_seed(5)
    src, tgt = (torch.randint(41, (3, n), generator=generator) for n in (11, 13))
    return model, src, tgt


@pytest.mark.parametrize("case, impl", impls(TRANSLATORS))
@torch.no_grad()
def test_translator_steps_match_forward(case, impl):
    hidden = padding([11, 7, 2], 11)
    model, src, tgt = make_model(TRANSLATORS[case])
    expected = model(src, tgt, hidden)
    model, *_ = make_model(TRANSLATORS[case], impl)
    state = model.encode(src, hidden, max_len=13)
    assert_close(torch.cat([model.step(state, chunk) for chunk in tgt.split(CHUNKS, dim=1)], dim=1), expected)
    assert state.length == 13


@pytest.mark.parametrize("case, impl", impls(DECODERS))
@torch.no_grad()
def test_decoder_steps_match_forward(case, impl):
    model, _, tokens = make_model(DECODERS[case])
    expected = model(tokens)
    model, *_ = make_model(DECODERS[case], impl)
    caches = model.make_caches(3, 13)
    assert_close(torch.cat([model(chunk, caches=caches) for chunk in tokens.split(CHUNKS, dim=1)], dim=1), expected)
    with pytest.raises(ValueError, match="^the cache has room for 13 tokens, not 14$"):
        model(tokens[:, :1], caches=caches)
    with pytest.raises(ValueError, match="^padding_mask is for whole sequences: with caches every token is real$"):
        model(tokens, torch.zeros(3, 13, dtype=torch.bool), caches)


@every_translator
@torch.no_grad()
def test_translator_ignores_padding(case):
    model, src, tgt = make_model(TRANSLATORS[case])
    src_mask, tgt_mask = padding([4, 11, 7], 11), padding([13, 5, 13], 13)
    plain = model(src, tgt, src_mask, tgt_mask)
    changed = (torch.where(mask, (x + 1) % 41, x) for x, mask in ((src, src_mask), (tgt, tgt_mask)))
    assert_close(model(*changed, src_mask, tgt_mask)[~tgt_mask], plain[~tgt_mask])
    assert_close(plain[:1], model(src[:1, :4], tgt[:1]))
    assert_close(plain[1:2, :5], model(src[1:2], tgt[1:2, :5]))
    # without masks the padding has an influence
    assert (model(src, tgt)[0] - plain[0]).abs().max() > 1e-4


class Products(TorchDispatchMode):
    """Collect the rows of the first operand of every matrix product."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("mm", "addmm"):
            self.rows.append(args[-2].shape[0])
        return func(*args, **(kwargs or {}))


def test_step_does_not_project_source_again():
    model, src, tgt = make_model(TRANSLATORS["translation-mha"])
    state = model.encode(src, max_len=13)
    with Products() as products:
        model.step(state, tgt[:, :1])
    # 3 sequences of one token; 4 products of self-attention, 2 of cross-attention, 2 of the feed-forward, 1 output
    assert products.rows == [3] * (2 * (4 + 2 + 2) + 1)


def test_encoder_gate_runs_once_for_all_steps():
    model, src, tgt = make_model(TRANSLATORS["dynamic-mae"])
    state = model.encode(src, max_len=1)
    for block in model.decoder.layers:
        block.cross_attn.gate = None
    assert model.step(state, tgt[:, :1]).shape == (3, 1, 41)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cache_dtype_under_autocast(dtype):
    """The cache has the dtype of the encoder output, which differs from that of the weights under autocast."""
    first = build(make_config(TRANSLATORS["translation-gqa"])).decoder.layers[0]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        caches = first.make_caches(torch.zeros(2, 3, 22, dtype=dtype), 7)
    for cache in (caches.own, caches.cross_attn):
        assert (cache.key.dtype, cache.value.dtype) == (dtype, dtype)
