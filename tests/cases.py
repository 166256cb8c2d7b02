"""Shared cases: a small layer of every variant and implementation, and small whole models."""

from dataclasses import MISSING, fields
from itertools import product

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.kernels.selection import missing
from headcount.models.transformer import LayerCaches

SIZES = {
    "d_model": 5 * 7, "num_heads": 5, "head_dim": 2 * 7, "num_experts": 3, "top_k": 2, "num_shared_heads": 1,
    "side": 2 * 3, "pool_ratio": 3, "position_width": 11,
}  # fmt: skip
"""Sizes by field: primes, or products of primes where one size must divide another. Other required fields are 4."""
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 11}
CPU = torch.device("cpu")


def in_turns(values, others):
    """Return each of ``values`` with one of ``others``, in turns, where all pairs would say no more."""
    return [(value, others[i % len(others)]) for i, value in enumerate(values)]


def configurations(*varied, **sizes):
    """Yield the id and the configuration of every variant with a module that has the fields ``sizes``.

    Each combination of choices of the fields ``varied`` (such as "form") gives a configuration.
    """
    for name, kind in ATTENTIONS.items():
        if kind.module is None or not sizes.keys() <= {f.name for f in fields(kind)}:
            continue
        choices = {f.name: list(type(f.default)) for f in fields(kind) if f.name in varied}
        required = {f.name: 4 for f in fields(kind) if f.default is MISSING}
        own = required | {f.name: (SIZES | sizes)[f.name] for f in fields(kind) if f.name in SIZES | sizes}
        for chosen in product(*choices.values()):
            yield "-".join((name, *chosen)), kind(**own | dict(zip(choices, chosen, strict=True)))


def cases(*varied, **sizes):
    """Return (configuration, implementation) of every layer that runs on this machine's CPU, as pytest parameters."""
    return [
        pytest.param(config, impl, id=f"{name}-{impl.name}")
        for name, config in configurations(*varied, **sizes)
        for impl in config.implementations
        if not missing(impl, CPU)
    ]


def takes_keys(config):
    """Return whether the layer takes queries and keys."""
    return "key" in config.inputs(LENGTHS)


def make_layer(config, impl, lengths=None):
    """Return a layer with ``impl`` selected, in the highest precision that it supports, and its inputs by name."""
    dtype = precision(impl)
    inputs = example_inputs(config, LENGTHS | (lengths or {}), dtype=dtype)
    return randomise(build(config, dtype=dtype, impl=impl.name)), inputs


class WithInputs(torch.nn.Module):
    """A model with fixed inputs that, like training data, require no gradient."""

    def __init__(self, model, inputs):
        super().__init__()
        self.model, self.held = model, inputs

    def forward(self):
        return self.model(**self.held)


def cache_bytes(*caches):
    """Return the bytes of the filled parts of caches, or of the caches of decoder layers."""
    total = 0
    for cache in caches:
        if isinstance(cache, LayerCaches):
            extra = [x for arguments in cache.memory_arguments for x in arguments.values()]
            total += sum(x.nbytes for x in extra) + cache_bytes(cache.own, cache.cross_attn)
        else:
            total += sum(x[:, : cache.length].nbytes for x in vars(cache).values() if isinstance(x, torch.Tensor))
    return total


def randomise(module, scale=0.2):
    """Add N(0, scale^2) to every trained parameter, so that no bias is 0, and return the module."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in (p for p in module.parameters() if p.requires_grad):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(scale * noise.to(parameter.dtype))
    return module


def features(*shape, seed=5):
    """Return seeded N(0, 1) values in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padding(real, total):
    """Return a mask (B, total), True after the first ``real`` tokens of each sequence."""
    return torch.arange(total) >= torch.tensor(real)[:, None]


def precision(impl):
    """Return float64, or float32 for kernels of another package, which multiply no float64 matrices."""
    return torch.float64 if impl.package is None else torch.float32


def assert_close(found, expected):
    """Assert equality up to rounding in the dtype of ``found``."""
    tolerance = 1e-10 if found.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)


LAYERS = cases("form", "router", "gates")
"""A small layer of every variant, form, router, kind of gates and implementation."""

TRANSLATION = dict(
    model="encoder_decoder", d_model=22, d_ff=29, num_encoder_layers=3, num_decoder_layers=2, vocab_size=41
)
MASKED = dict(model="masked_lm", d_model=22, d_ff=29, num_layers=3, vocab_size=41, max_positions=19)
MHA = dict(attention="mha", num_heads=2)
GQA = dict(attention="mha", num_heads=6, num_kv_heads=2, head_dim=5)
MOA = dict(attention="moa", num_experts=7, top_k=3, head_dim=5)
MOH = dict(attention="moh", num_heads=6, num_shared_heads=2, top_k=3, num_kv_heads=2, head_dim=10)
NORM = MOH | dict(router="query_norm")
MLA = dict(attention="mla", num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
SWITCHHEAD = dict(attention="switchhead", num_heads=3, head_dim=10, num_experts=7, top_k=2)
MAE = dict(attention="mae", num_heads=3, head_dim=5, gate_width=7)
CONVOLUTION = dict(
    model="convolution", d_model=22, d_ff=29, vocab_size=41, num_weight_heads=11,
    encoder_kernel_sizes=(3, 19), decoder_kernel_sizes=(5, 1, 19),
)  # fmt: skip
EXPERTS = dict(ffn_num_experts=5, ffn_top_k=2)
IDEAL = dict(form="ideal")
LLAMA = dict(model="llama", d_model=22, d_ff=29, num_layers=3, vocab_size=41)
JETMOE = LLAMA | MOA | EXPERTS | dict(
    model="jetmoe", head_dim=12, num_kv_heads=3, gates="selected", output_bias=True
)  # fmt: skip
DEEPSEEK = LLAMA | MLA | EXPERTS | dict(
    model="deepseek", query_rank=17, num_dense_layers=1, num_shared_experts=3, expert_d_ff=13
)  # fmt: skip
DECODER = dict(model="decoder", d_model=22, d_ff=29, num_layers=3, vocab_size=41, context_len=19)
PALM = dict(positions="rotary", parallel=True, gated=True, bias=False, num_kv_heads=1, head_dim=10)
DIT = dict(model="dit", d_model=28, num_layers=4, patch_size=3, latent_size=15, num_classes=7, frequency_width=22)
PER_LAYER = dict(num_heads=(3, 3, 3, 5), num_shared_heads=(3, 1, 1, 2), top_k=(0, 2, 2, 2), num_kv_heads=None)
IMAGES = dict(
    model="transnext", d_model=(10, 21, 33), num_heads=(2, 3, 11), depths=(2, 1, 2), mlp_ratio=(7, 5, 3),
    pool_ratio=(5, 2, 1), image_size=80, num_classes=13, position_width=17,
)  # fmt: skip
HEADS = dict(attention="moh_aggregated", num_shared_heads=(2, 1, 3), top_k=(0, 1, 5))
MODEL_LENGTHS = dict(batch_size=3, src_len=17, tgt_len=13, seq_len=17)
"""Lengths of a case that gives none."""
MODEL_CASES = {
    "translation-mha": TRANSLATION | MHA,
    "translation-gqa": TRANSLATION | GQA,
    "translation-moa": TRANSLATION | MOA,
    "translation-moa-biased": TRANSLATION | MOA | dict(bias=True, batch_size=1, src_len=1, tgt_len=2),
    "translation-moa-noisy": TRANSLATION | MOA | dict(noisy=True, batch_size=1, src_len=17, tgt_len=13),
    "translation-mixture": TRANSLATION | MHA | EXPERTS,
    "masked-mixture-moa": MASKED | MOA | EXPERTS,
    "llama-mixture": LLAMA | MOH | EXPERTS,
    "dit-mixture": DIT | MHA | EXPERTS | dict(head_dim=11),
    "llama-moa": LLAMA | MOA | dict(head_dim=10),
    "jetmoe": JETMOE,
    "deepseek": DEEPSEEK,
    "deepseek-no-query-latent": DEEPSEEK | dict(query_rank=None, num_dense_layers=2, num_shared_experts=1),
    "deepseek-predictors": DEEPSEEK | dict(num_predicted=2),
    "decoder-learned": DECODER | MHA,
    "decoder-untied": DECODER | GQA | dict(tied=False, bias=False, gated=True),
    "decoder-parallel": DECODER | MHA | PALM,
    "decoder-plain-parallel": DECODER | MHA | PALM | dict(gated=False),
    "masked-mha": MASKED | MHA,
    "masked-moa": MASKED | MOA | dict(bias=True),
    "masked-moa-all-experts": MASKED | MOA | dict(top_k=7, batch_size=1, seq_len=13),
    "translation-moh": TRANSLATION | MOH | dict(bias=True),
    "masked-moh-ideal": MASKED | MOH | IDEAL | dict(bias=True),
    "llama-gqa": LLAMA | GQA | dict(bias=False, head_dim=10),
    "llama-moh": LLAMA | MOH,
    "llama-moh-ideal": LLAMA | MOH | IDEAL,
    "llama-moh-norm": LLAMA | NORM,
    "llama-moh-norm-ideal": LLAMA | NORM | IDEAL,
    "llama-moh-norm-biased": LLAMA | NORM | dict(bias=True),
    "llama-moh-norm-ideal-biased": LLAMA | NORM | IDEAL | dict(bias=True),
    "masked-mla-wide": MASKED
    | MLA
    | IDEAL
    | dict(head_dim=7, value_dim=3, kv_rank=5, bias=True)
    | dict(batch_size=1, seq_len=13),
    "llama-mha-biased": LLAMA | MHA | dict(head_dim=10, bias=True),
    "dit": DIT | MHA | dict(head_dim=11),
    "dit-moa": DIT | MOA,
    "dit-moh": DIT | MOH | PER_LAYER | dict(bias=True),
    "dit-moh-ideal": DIT | MOH | PER_LAYER | IDEAL | dict(bias=True),
    "images": IMAGES | dict(attention="aggregated"),
    "images-moh": IMAGES | HEADS,
    "images-moh-ideal": IMAGES | HEADS | IDEAL,
    "translation-mla-ideal": TRANSLATION | MLA | IDEAL,
    "llama-mla": LLAMA | MLA | dict(query_rank=17, bias=True),
    "llama-mla-ideal": LLAMA | MLA | IDEAL | dict(query_rank=17, bias=True),
    "translation-switchhead": TRANSLATION | SWITCHHEAD,
    "llama-switchhead": LLAMA | SWITCHHEAD,
    "translation-mae-memory": TRANSLATION | MAE,
    "translation-mae-running": TRANSLATION | MAE | dict(causal_gate="running", bias=False),
    "light": CONVOLUTION | MHA | dict(convolution="light"),
    "dynamic-mae": CONVOLUTION | MAE | dict(convolution="dynamic"),
    "dynamic-band": CONVOLUTION
    | MOA
    | dict(convolution="dynamic", spelling="band")
    | dict(batch_size=1, src_len=7, tgt_len=23),
    "masked-mae": MASKED | MAE,
    "images-mixture": IMAGES | EXPERTS | dict(attention="aggregated"),
    "images-moh-mixture": IMAGES | HEADS | IDEAL | EXPERTS,
    "light-mixture": CONVOLUTION | MHA | EXPERTS | dict(convolution="light"),
    "dynamic-mixture": CONVOLUTION | MOA | EXPERTS | dict(convolution="dynamic"),
    "masked-moa-one-expert": MASKED | MOA | dict(top_k=1, num_experts=1, batch_size=3, seq_len=13),
}
MODEL_FIELDS = {
    case: {name: value for name, value in values.items() if name not in MODEL_LENGTHS}
    for case, values in MODEL_CASES.items()
}
"""Fields of the configuration of each case, without its lengths."""
