"""DeepSeek-V3 at full width on meta: the whole model in closed form, layers of each kind under every counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import headcount as hc
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.counting.devices import count_model, model_of
from headcount.models.build import build, example_inputs

d, h, d_h, d_r, d_v, d_c, d_q, T = 7168, 128, 128, 64, 128, 512, 1536, 4096
QUERIES = d * d_q + d_q * h * (d_h + d_r)
KEYS_AND_VALUES = d * (d_c + d_r) + d_c * h * (d_h + d_v)
ATTENTION = QUERIES + KEYS_AND_VALUES + h * d_v * d
SQUARE = h * (d_h + d_r + d_v) * T
DENSE, EXPERT, ROUTER, WORDS = 3 * d * 18432, 3 * d * 2048, d * 256, d * 129280


def test_closed_form_of_whole_model():
    case, layers, mixtures = Case.of("deepseek-v3"), 61, 58
    macs = T * (layers * (ATTENTION + SQUARE) + 3 * DENSE + mixtures * ((1 + 8) * EXPERT + ROUTER) + WORDS)
    norms = layers * (2 * d + d_q + d_c) + d
    params = layers * ATTENTION + 3 * DENSE + mixtures * ((1 + 256) * EXPERT + ROUTER) + 2 * WORDS + norms
    assert (case.ledger.macs, case.ledger.params) == (macs, params)


def test_grouped_products_are_all_that_pytorch_misses():
    case = Case.of("deepseek-v3", {"num_layers": 2, "num_dense_layers": 1})
    model = build(case.config, device="meta", dtype=torch.bfloat16, impl="auto")
    tokens = example_inputs(case.config, case.lengths, device="meta")["tokens"]
    with FlopCounterMode(display=False) as theirs:
        model(tokens)
    assert hc.count(model, tokens).macs == case.ledger.macs
    assert case.ledger.macs - theirs.get_total_flops() // 2 == T * 8 * EXPERT


@pytest.mark.parametrize(
    "num_layers, macs, activations",
    [(1, DENSE, T * 18432), (2, DENSE + (1 + 8) * EXPERT + ROUTER, T * (18432 + (1 + 8) * 2048))],
    ids=["dense", "dense-and-mixture"],
)
def test_every_counter_at_full_width(num_layers, macs, activations):
    case = Case.of("deepseek-v3", {"num_layers": num_layers, "num_dense_layers": 1})
    found = count_model(model_of(case), registry.tools(), "meta")
    exact = T * (num_layers * (ATTENTION + SQUARE) + macs + WORDS)
    assert all(count.explained and not count.disagreement for count in found.tools)
    # patched F.silu
    expected = {name: exact + activations * (name == "ptflops-pytorch") for name in registry.tools()}
    assert {count.counter: count.macs for count in found.tools} == expected
