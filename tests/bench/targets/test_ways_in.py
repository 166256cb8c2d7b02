"""The same costs by every way in: a preset, the library's configuration of the same sizes, a class and a function."""

import pytest

from headcount.bench.accounts import ACCOUNTS, Assumptions, NoAccount
from headcount.bench.api.count import count_macs
from headcount.bench.case import Case
from headcount.bench.counting.result import Unknown
from headcount.models.build import build, example_inputs
from headcount.models.configs.presets import preset

COSTS = ("params", "active_params", "macs")
COLUMNS = ("kv_bytes", "decode_macs", "decode_bytes", "causal_macs", "training_macs")
D, H, G, D_H, FF, V, N = 24, 4, 2, 6, 32, 53, 3
SMALL = dict(d_model=D, num_heads=H, num_kv_heads=H, head_dim=D_H, d_ff=FF, vocab_size=V, num_layers=N)
GROUPED = {**SMALL, "num_kv_heads": G}
STACK = dict(d_model=D, d_ff=FF, vocab_size=V, num_encoder_layers=2, num_decoder_layers=3)
MIXTURE = dict(ffn_num_experts=5, ffn_top_k=2)
TOKENS = dict(batch_size=2, seq_len=11)
PAIRS = dict(batch_size=2, src_len=11, tgt_len=7)
LIBRARY = dict(
    hidden_size=D, head_dim=D_H, intermediate_size=FF, num_hidden_layers=N, num_attention_heads=H,
    num_key_value_heads=G, vocab_size=V, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=2,
)  # fmt: skip


def library(kind, name, **fields):
    """Return a configuration of the library."""
    return {**LIBRARY, "model_type": kind, "architectures": [name], **fields}


MODELS = {
    "llama3-8b": (GROUPED, TOKENS, library("llama", "LlamaForCausalLM")),
    "llama2-7b": (SMALL, TOKENS, library("llama", "LlamaForCausalLM", num_key_value_heads=H)),
    "mistral-7b": (GROUPED, TOKENS, library("mistral", "MistralForCausalLM", sliding_window=None)),
    "gpt3-175b": (
        {**SMALL, "context_len": 64},
        TOKENS,
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": D, "n_head": H, "n_layer": N,
         "n_inner": FF, "vocab_size": V, "n_positions": 64},
    ),
    "palm-8b": ({**GROUPED, "num_kv_heads": 1}, TOKENS, None),
    "moh-llm-s-75": ({**SMALL, "num_shared_heads": 1, "top_k": 2}, TOKENS, None),
    "qwen2_5-72b": (
        {**GROUPED, **MIXTURE},
        TOKENS,
        library("mixtral", "MixtralForCausalLM", num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
    ),
    "jetmoe-8b": (
        {"d_model": D, "num_experts": 5, "top_k": 2, "head_dim": 12, "num_kv_heads": G, "d_ff": FF, "vocab_size": V,
         "num_layers": N, **MIXTURE},
        TOKENS,
        None,
    ),
    "transformer-base": ({**STACK, "num_heads": H, "num_kv_heads": H, "head_dim": D_H}, PAIRS, None),
    "transnext-micro": ({"depths": (1, 1, 1, 1)}, {"batch_size": 2}, None),
    "lightconv": ({"vocab_size": V, "d_model": 64, "d_ff": FF}, PAIRS, None),
    "moa-8K8E128D": ({**STACK, "num_experts": 5, "top_k": 2, "head_dim": D_H}, PAIRS, None),
}  # fmt: skip
"""Fields and lengths of each preset, and the library's configuration of the same sizes where it has one."""


def costs_of_preset(name):
    """Return parameters, MACs and columns of the closed form; None for a column that the model does not have."""
    settings, lengths, _ = MODELS[name]
    case = Case.of(name, settings, lengths)
    found = {name: getattr(case.ledger, name) for name in COSTS}
    for column in COLUMNS:
        try:
            found[column] = ACCOUNTS[column].value(case, Assumptions())
        except NoAccount:
            found[column] = None
    return found


def check(costs, closed, reasons=()):
    """Check that each cost is that of the closed form; of ``reasons`` it may be unknown, or a text that says why."""
    for name, value in costs.items():
        unknown = value is None or isinstance(value, Unknown)
        assert value == closed[name] or unknown and (name in reasons or closed[name] is None), name


def costs_of_count(found):
    """Return parameters, MACs and columns of a module's count."""
    return {name: getattr(found, name) for name in COSTS} | found.columns


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][2]])
def test_configuration_costs_what_a_preset_does(name, count):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    _, lengths, config = MODELS[name]
    check(costs_of_count(count(config, columns=COLUMNS, lengths=lengths)), costs_of_preset(name))


CLASS = """
import headcount as hc
from headcount.models.build import example_inputs

def make():
    config = hc.preset({name!r}, {settings!r})
    return hc.build(config, device="meta"), example_inputs(config, {lengths!r}, device="meta")
"""
DECODING = {"kv_bytes", "decode_macs", "decode_bytes"}
"""Costs of a step, which needs the library's cache: a dash with that reason for other modules."""
SELECTS_HEADS = {"moh-llm-s-75"}
"""Computes all heads and multiplies some by 0: which weights a token uses is not known."""
IMAGES = {"transnext-micro": 2 * 56**2 * (7 * 7 * 3) * 48}
"""MACs of the images' gradient, by batch, places, window and width: a module's input has one, training data none."""


@pytest.mark.parametrize("name", MODELS)
def test_class_costs_what_a_preset_does(name, count, tmp_path):
    settings, lengths, _ = MODELS[name]
    (tmp_path / "own.py").write_text(CLASS.format(name=name, settings=settings, lengths=lengths))
    found, closed = count("own.py:make", columns=COLUMNS), costs_of_preset(name)
    costs = costs_of_count(found)
    costs["training_macs"] -= IMAGES.get(name, 0)
    assert any("Gradients of floating-point inputs" in note for note in found.notes) == (name in IMAGES)
    # convolutions have no pairs to hide, so that all MACs are left
    assert costs["causal_macs"] == costs["macs"] or isinstance(costs.pop("causal_macs"), Unknown)
    if name in SELECTS_HEADS:
        assert costs.pop("active_params") is None
    check({key: value for key, value in costs.items() if key != "causal_macs"}, closed, DECODING)


@pytest.mark.parametrize("name", ["llama3-8b", "moh-llm-s-75", "moa-8K8E128D", "jetmoe-8b"])
def test_function_costs_what_a_preset_does(name):
    settings, lengths, _ = MODELS[name]
    config = preset(name, settings)
    model = build(config, device="meta")
    found = count_macs(lambda **inputs: model(**inputs), **example_inputs(config, lengths, device="meta"))
    costs, closed = {key: getattr(found, key) for key in COSTS}, costs_of_preset(name)
    if name in SELECTS_HEADS:
        assert costs.pop("active_params") is None
    check(costs, closed)
