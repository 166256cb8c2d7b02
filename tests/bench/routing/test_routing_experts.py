"""headcount routing on models that route in attention and in the feed-forward block."""

import json

import torch

from headcount.bench.routing import tables
from headcount.bench.routing.__main__ import main
from headcount.bench.routing.recorder import record
from headcount.models.build import build
from headcount.models.configs.presets import preset

SMALL = {"vocab_size": 41, "num_layers": 1, "d_model": 24, "d_ff": 13, "ffn_num_experts": 5, "ffn_top_k": 2}
TOKENS = [1, 2, 3, 4, 5, 6, 7]


def layers_of(name, **fields):
    return record(build(preset(name, SMALL | fields)), [(TOKENS, TOKENS)])


def test_experts_of_attention_and_ffn_have_own_macs():
    attention, block = layers_of("jetmoe-small", head_dim=12, num_kv_heads=2, num_experts=7, top_k=3)
    assert (attention.path, block.path) == ("layers.0.self_attn", "layers.0.feed_forward")
    assert (attention.num_experts, attention.top_k, block.num_experts, block.top_k) == (7, 3, 5, 2)
    # queries, outputs, scores and values over 7 tokens; three matrices
    assert sum(attention.expert_macs) == 3 * 7 * (2 * 24 * 12 + 2 * 7 * 12)
    assert sum(block.expert_macs) == 2 * 7 * 3 * 24 * 13
    assert [len(same) for same in tables.by_unit([attention, block])] == [2]


def test_heads_and_experts_have_separate_tables(tmp_path, capsys):
    sizes = {"num_heads": 4, "num_shared_heads": 1, "top_k": 2, "head_dim": 6}
    heads, experts = tables.by_unit(layers_of("moh-llm-s-75", **sizes))
    assert [one.unit for one in (*heads, *experts)] == ["head", "expert"]
    torch.save(build(preset("moh-llm-s-75", SMALL | sizes)).state_dict(), tmp_path / "model.pt")
    (tmp_path / "tokens.txt").write_text("1 2 3 4\n")
    changed = [f"{field}={value}" for field, value in (SMALL | sizes).items()]
    files = ["--checkpoint", str(tmp_path / "model.pt"), "--tokens", str(tmp_path / "tokens.txt"), "--format", "json"]
    assert main(["--preset", "moh-llm-s-75", "--set", *changed, *files]) == 0
    names = [table["name"] for table in json.loads(capsys.readouterr().out)["tables"]]
    assert names == ["routing", "heads", "routing-experts", "experts"]
