"""Configurations that cannot be built are refused with the field, its value and the limit."""

import re

import pytest

from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset

MAE = dict(attention="mae", d_model=11, num_heads=3, head_dim=5, gate_width=7)
MLA = dict(attention="mla", d_model=13, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
SWITCHHEAD = dict(attention="switchhead", d_model=13, num_heads=3, head_dim=4, num_experts=7, top_k=2)
LLAMA = dict(model="llama", d_model=15, d_ff=17, num_layers=3, vocab_size=19, attention="mha", num_heads=6, head_dim=4)
UNEVEN = dict(attention="moh", num_heads=(6, 4, 6), num_shared_heads=(2, 1, 6), top_k=(3, 4, 0), num_kv_heads=2)
TRANSNEXT = dict(
    model="transnext", attention="aggregated", d_model=(10, 21), num_heads=(2, 3), depths=(1, 2), mlp_ratio=(5, 3),
    pool_ratio=(5, 1), image_size=40, num_classes=7, position_width=5,
)  # fmt: skip
CASES = [
    (MAE, dict(num_heads=1), "num_heads must be at least 2, not 1"),
    (MAE, dict(gate="mean"), "gate must be one of sequence, running, memory, not 'mean'"),
    (MAE, dict(causal_gate="sequence"), "causal_gate must be one of running, memory, not 'sequence'"),
    (MAE, dict(attention_dropout=1.0), "attention_dropout must lie in [0, 1), not 1.0"),
    (MLA, dict(num_heads=0), "num_heads must be at least 1, not 0"),
    (MLA, dict(num_heads=5, head_dim=None), "num_heads must divide d_model, and 5 does not divide 13"),
    (MLA, dict(rotary_dim=0), "rotary_dim must be at least 1, not 0"),
    (MLA, dict(kv_rank=0), "kv_rank must be at least 1, not 0"),
    (MLA, dict(query_rank=0), "query_rank must be at least 1, not 0"),
    (MLA, dict(form="dense"), "form must be one of released, ideal, not 'dense'"),
    (MLA, dict(attention_dropout=1.0), "attention_dropout must lie in [0, 1), not 1.0"),
    (LLAMA, MLA | dict(rotary_dim=3), "rotary_dim must be even for rotary positions, not 3"),
    (SWITCHHEAD, dict(top_k=8), "top_k must lie in 1..num_experts = 1..7, not 8"),
    (SWITCHHEAD, dict(top_k=0), "top_k must be at least 1, not 0"),
    (SWITCHHEAD, dict(head_dim=0), "head_dim must be at least 1, not 0"),
    (SWITCHHEAD, dict(head_dim=None), "num_heads must divide d_model, and 3 does not divide 13"),
    (SWITCHHEAD, dict(attention_dropout=1.0), "attention_dropout must lie in [0, 1), not 1.0"),
    (LLAMA, dict(attention="mae", num_heads=3), "attention must be one of"),
    (LLAMA, dict(head_dim=5), "head_dim must be even for rotary positions, not 5"),
    (LLAMA, UNEVEN, "layer 1: top_k must lie in 0..num_heads - num_shared_heads = 0..3, not 4"),
    (LLAMA, dict(num_layers=0), "num_layers must be at least 1, not 0"),
    (LLAMA, dict(ffn_num_experts=3, ffn_top_k=4), "ffn_top_k must lie in 1..ffn_num_experts = 1..3, not 4"),
    (LLAMA, dict(ffn_num_experts=3), "ffn_top_k must lie in 1..ffn_num_experts = 1..3, not 0"),
    (LLAMA, dict(ffn_top_k=2), "ffn_top_k must lie in 0..ffn_num_experts = 0..0, not 2"),
    (LLAMA, dict(ffn_num_experts=-1), "ffn_num_experts must be at least 0, not -1"),
    (LLAMA, dict(ffn_num_experts=3, ffn_top_k=1, ffn_z_loss_weight=-1.0), "ffn_z_loss_weight must be at least 0"),
    (TRANSNEXT, dict(image_size=44), "image_size must be a multiple of 8"),
    (TRANSNEXT, dict(image_size=8), "image_size must be a multiple of 8, the stride of 2 stages, from 16 on, not 8"),
    (TRANSNEXT, dict(image_size=40.0), "image_size must be a whole number, not 40.0"),
    (TRANSNEXT, dict(pretrained_size=225), "pretrained_size must be a multiple of 8"),
    (TRANSNEXT, dict(image_size=48), "stage 0: pool_ratio must divide the side of the grid, and 5 does not divide 12"),
    (TRANSNEXT, dict(depths=(1, 0)), "depths must be at least 1, not 0"),
    (TRANSNEXT, dict(depths=()), "depths must have the number of layers of at least one stage"),
    (TRANSNEXT, dict(depths=(1, 2, 3)), "d_model takes one whole number or one for each of 3 stages, not 2"),
    (TRANSNEXT, dict(mlp_ratio=(5,)), "mlp_ratio takes one for each of 2 stages, not 1"),
    (TRANSNEXT, dict(num_heads=(2, 4)), "stage 1: num_heads must divide d_model, and 4 does not divide 21"),
    (TRANSNEXT, dict(num_heads=(2, 3, 4)), "num_heads takes one whole number or one for each of 2 stages, not 3"),
    (TRANSNEXT, dict(side=5), "unknown field 'side'"),
]


@pytest.mark.parametrize("values, changes, message", CASES)
def test_unbuildable_sizes_raise(values, changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        make_config(values | changes)


def test_grid_and_sequence_attention_do_not_mix():
    with pytest.raises(ConfigError, match="in a transnext model, not 'mha'$"):
        preset("transnext-micro", {"attention": "mha"})
    with pytest.raises(ConfigError, match="^attention aggregated is of a grid of tokens"):
        preset("transformer-base", dict(attention="aggregated", num_heads=8, side=7, pool_ratio=1))
