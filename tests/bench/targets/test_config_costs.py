"""Costs of configurations beyond the count: experts read, windows and masks, by arithmetic that shares no code."""

import json

import pytest

from headcount.bench.commands.count import main
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.targets.conftest import write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

D, D_H, H, G, FF, V, N = 24, 6, 4, 2, 32, 53, 3
BASE = dict(
    hidden_size=D, head_dim=D_H, intermediate_size=FF, num_hidden_layers=N, num_attention_heads=H,
    num_key_value_heads=G, vocab_size=V,
)  # fmt: skip
ATTENTION = 2 * D * H * D_H + 2 * D * G * D_H


def family(kind, name, **fields):
    """Return a configuration of a small model."""
    return {**BASE, "model_type": kind, "architectures": [name], **fields}


def experts(kind, name, number, top_k, width, **fields):
    """Return a configuration of a mixture, its experts' elements, and those of all other weights that a step reads."""
    config = family(kind, name, num_experts_per_tok=top_k, **fields)
    return config, number, top_k, 3 * D * width, N * (ATTENTION + D * number + 2 * D) + D + D * V


MIXTURES = {
    "mixtral": experts("mixtral", "MixtralForCausalLM", 7, 3, FF, num_local_experts=7),
    "mixtral-1": experts("mixtral", "MixtralForCausalLM", 5, 1, FF, num_local_experts=5),
    "qwen3_moe": experts("qwen3_moe", "Qwen3MoeForCausalLM", 6, 2, 40, num_experts=6, moe_intermediate_size=40),
    # norms of queries and keys
    "olmoe": experts("olmoe", "OlmoeForCausalLM", 5, 2, FF, num_experts=5, num_key_value_heads=H),
}
NORMS = {"qwen3_moe": 2 * D_H, "olmoe": 2 * H * D_H + 2 * D * (H - G) * D_H}


@pytest.mark.parametrize(
    ("name", "batch"), [("mixtral", 1), ("mixtral", 5), ("mixtral-1", 5), ("qwen3_moe", 1), ("olmoe", 5)]
)
def test_decode_reads_selected_experts_alone(count, name, batch):
    config, number, top_k, expert, rest = MIXTURES[name]
    heads, tokens = (H if name == "olmoe" else G), 11
    columns = ["decode_bytes", "forward_bytes"]
    found = count(config, columns=columns, lengths={"seq_len": tokens, "batch_size": batch}).columns
    rest += N * NORMS.get(name, 0)
    cache = batch * N * 2 * heads * D_H * (tokens + 1)
    step = rest + N * min(number, batch * top_k) * expert + batch * D + cache
    forward = rest + N * min(number, batch * tokens * top_k) * expert + batch * tokens * D
    assert found == {"decode_bytes": 2 * step, "forward_bytes": 2 * forward}


def test_biases_of_experts_are_read_once(count):
    number, top_k, tokens = 7, 2, 11
    fields = dict(num_local_experts=number, num_experts_per_tok=top_k, sliding_window=31)
    config = family("gpt_oss", "GptOssForCausalLM", **fields, layer_types=["full_attention"] * N)
    found = count(config, columns=["decode_bytes", "forward_bytes"], lengths={"seq_len": tokens}).columns
    expert = 3 * D * FF + 2 * FF + D
    biases = H * D_H + 2 * G * D_H + D + number + H
    rest = N * (ATTENTION + biases + D * number + 2 * D) + D + D * V
    cache = N * 2 * G * D_H * (tokens + 1)
    assert found["decode_bytes"] == 2 * (rest + N * top_k * expert + D + cache)
    assert found["forward_bytes"] == 2 * (rest + N * number * expert + tokens * D)


MODULE_LIST = """
import torch
from torch import nn
class Experts(nn.Module):
    def __init__(self, experts, top_k):
        super().__init__()
        self.router = nn.Linear(5, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(5, 7, bias=False) for _ in range(experts))
        self.top_k = top_k
    def forward(self, x):
        chosen = self.router(x).topk(self.top_k, -1).indices
        y = x.new_zeros(len(x), 7)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).any(-1)
            y[rows] += expert(x[rows])
        return y
def make(experts, top_k): return Experts(experts, top_k), (torch.randn(1, 5),)
"""


@pytest.mark.parametrize(("number", "top_k"), [(5, 2), (3, 3)])
def test_module_list_of_experts_reads_selected_ones(count, tmp_path, number, top_k):
    (tmp_path / "module_list.py").write_text(MODULE_LIST)
    found = count("module_list:make", {"experts": number, "top_k": top_k}, columns=["forward_bytes"])
    assert found.columns == {"forward_bytes": 2 * (5 * number + top_k * 5 * 7 + 5 + 7)}


T = 13


def visible(length, window):
    """Return the pairs of a causal query and a key of its window, counted one by one."""
    return sum(key <= query and query - key < (window or length) for query in range(length) for key in range(length))


SLIDING, FULL = "sliding_attention", "full_attention"
KINDS = [SLIDING, FULL, SLIDING]
WINDOWED = {
    "mistral": (family("mistral", "MistralForCausalLM"), [SLIDING] * N),
    "mistral-eager": (family("mistral", "MistralForCausalLM", attn_implementation="eager"), [SLIDING] * N),
    "gemma2": (family("gemma2", "Gemma2ForCausalLM", query_pre_attn_scalar=D_H), KINDS),
    "gemma3": (family("gemma3_text", "Gemma3ForCausalLM", layer_types=KINDS), KINDS),
    "gpt_oss": (
        family("gpt_oss", "GptOssForCausalLM", num_local_experts=4, num_experts_per_tok=2), KINDS,
    ),
    "qwen3": (family("qwen3", "Qwen3ForCausalLM", layer_types=KINDS, use_sliding_window=True), KINDS),
    "llama": (family("llama", "LlamaForCausalLM"), [FULL] * N),
    "llama-eager": (family("llama", "LlamaForCausalLM", attn_implementation="eager"), [FULL] * N),
    "gpt2": (dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=D, n_layer=N, n_head=H, n_positions=32,
                  attn_implementation="eager"), [FULL] * N),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "length", "batch", "window"),
    [
        *((name, T, 2, 5) for name in WINDOWED),
        *((name, *sizes) for name in ("mistral", "mistral-eager") for sizes in ((T, 1, T), (7, 3, 31))),
    ],
)
def test_masks_hide_pairs_of_configurations(count, name, length, batch, window):
    config, kinds = WINDOWED[name]
    has_window = SLIDING in kinds
    if has_window:
        config = {**config, "sliding_window": window}
    found = count(config, columns=["causal_macs"], lengths={"seq_len": length, "batch_size": batch})
    pairs = sum(visible(length, window if kind == SLIDING else None) for kind in kinds)
    hidden = 2 * batch * H * D_H * (N * length**2 - pairs)
    assert found.columns["causal_macs"] == found.macs - hidden


@pytest.mark.parametrize("window", [2, 40])
def test_given_window_of_a_configuration(count, window):
    for config in (WINDOWED["llama"][0], WINDOWED["llama-eager"][0]):
        columns = ["causal_macs", "windowed_macs", "kv_bytes", "decode_macs", "decode_bytes"]
        found = count(config, columns=columns, window=window, lengths={"seq_len": T})
        pairs = 2 * N * H * D_H
        kept, stored = min(T, window), N * 2 * G * D_H
        linear = N * (ATTENTION + 3 * D * FF) + D * V
        assert found.columns == {
            "causal_macs": found.macs - pairs * (T * T - visible(T, None)),
            "windowed_macs": found.macs - pairs * (T * T - visible(T, window)),
            "kv_bytes": 2 * stored * kept,
            "decode_macs": linear + pairs * kept,
            "decode_bytes": 2 * (linear + N * 2 * D + D + D + stored * (kept + 1)),
        }


@pytest.mark.parametrize("name", ["mistral", "mistral-eager", "gemma3"])
def test_own_window_of_a_configuration(count, name):
    config, kinds = WINDOWED[name]
    config = {**config, "sliding_window": 5}
    columns = ["windowed_macs", "causal_macs", "kv_bytes", "decode_macs"]
    found = count(config, columns=columns, window=5, lengths={"seq_len": T})
    assert found.columns == count(config, columns=columns, lengths={"seq_len": T}).columns
    assert found.columns["windowed_macs"] == found.columns["causal_macs"]
    token, full = 2 * 2 * G * D_H, kinds.count(FULL)
    # the library stores one key fewer than a query sees
    stored, read = (token * (full * T + (N - full) * keys) for keys in (4, 5))
    assert found.columns["kv_bytes"] == stored
    assert any(f"{stored:,} bytes" in note and f"{read:,} bytes" in note for note in found.notes)
    with pytest.raises(UserCodeError, match="--window 4: the configuration has a window of 5"):
        count(config, columns=columns, window=4, lengths={"seq_len": T})


def test_window_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {**WINDOWED["mistral"][0], "sliding_window": 5})
    words = ["config.json", "--seq-len", "13", "--decode"]
    assert main([*words, "--window", "6"]) == 2
    assert "--window 6: the configuration has a window of 5" in capsys.readouterr().err
    assert main([*words, "--format", "json"]) == 0
    (row,) = {table["name"]: table for table in json.loads(capsys.readouterr().out)["tables"]}["memory"]["rows"]
    assert row["kv_bytes"] == 2 * N * 2 * G * D_H * 4


@pytest.mark.parametrize(("images", "side"), [(0, 56), (1, 56), (2, 112)])
def test_masks_index_tensors_without_values(count, images, side):
    rope = {"rope_type": "default", "mrope_section": [1, 1, 1], "rope_theta": 10000.0}
    vision = dict(
        hidden_size=32, intermediate_size=48, depth=3, num_heads=4, out_hidden_size=D, patch_size=14,
        spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=16, deepstack_visual_indexes=[0, 1],
    )  # fmt: skip
    text = {**BASE, "vocab_size": 97, "rope_parameters": rope}
    config = dict(
        model_type="qwen3_vl", architectures=["Qwen3VLForConditionalGeneration"], text_config=text,
        vision_config=vision, image_token_id=90, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    lengths = {"seq_len": 43} | ({"images": images, "image_size": side} if images else {})
    found, executed = (count(config, lengths=lengths, device=device) for device in (None, "cpu"))
    assert found.macs == executed.macs and found.device.startswith("meta")
    patches = (side // 14) ** 2
    tower = patches * (3 * 2 * 14**2 * 32 + 3 * (4 * 32**2 + 2 * 32 * 48 + 2 * patches * 32))
    mergers = 3 * patches // 4 * (128 * 128 + 128 * D)
    words = N * (43 * (ATTENTION + 3 * D * FF) + 2 * 43**2 * H * D_H) + 43 * D * 97
    assert found.macs == words + images * (tower + mergers)
