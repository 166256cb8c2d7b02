"""Checkpoints of Hugging Face: outputs equal those of transformers, and wrong tensors raise."""

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.hugging_face import load_hugging_face
from headcount.models.rotary import rotary_table
from tests.cases import assert_close, features, randomise

WIDTHS = dict(d_model=12, d_ff=14, num_layers=2, vocab_size=31)
LLAMA = dict(model="llama", attention="mha", num_heads=6, num_kv_heads=2, head_dim=4, bias=False, **WIDTHS)
JETMOE = dict(
    model="jetmoe", attention="moa", num_experts=5, top_k=3, head_dim=6, num_kv_heads=3, gates="selected",
    output_bias=True, ffn_num_experts=5, ffn_top_k=3, **WIDTHS,
)  # fmt: skip
DEEPSEEK = dict(
    model="llama", attention="mla", num_heads=3, head_dim=5, rotary_dim=6, value_dim=7, kv_rank=11, **WIDTHS
)
LATENT = [DEEPSEEK | dict(query_rank=rank, bias=bias) for rank in (None, 17) for bias in (False, True)]
TOKENS = torch.randint(31, (2, 11), generator=torch.Generator().manual_seed(0))


def make_theirs(values):
    """Return the model of transformers with these sizes, without zeros."""
    package = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    sizes = dict(hidden_size=12, intermediate_size=14, num_hidden_layers=2, vocab_size=31)
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    if values is LLAMA:
        heads = dict(num_attention_heads=6, num_key_value_heads=2, head_dim=4)
        config = package.LlamaConfig(**sizes, **heads, rms_norm_eps=1e-5, **rope)
    elif values is JETMOE:
        experts = dict(num_key_value_heads=3, kv_channels=2, num_local_experts=5, num_experts_per_tok=3)
        config = package.JetMoeConfig(**sizes, **experts, rms_norm_eps=1e-5)
    else:
        heads = dict(num_attention_heads=3, num_key_value_heads=3, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=7)
        ranks = dict(kv_lora_rank=11, q_lora_rank=values["query_rank"], attention_bias=values["bias"])
        # every layer dense: their mixtures have shared experts
        config = package.DeepseekV3Config(**sizes, **heads, **ranks, first_k_dense_replace=2, **rope)
    return randomise(package.AutoModelForCausalLM.from_config(config)).eval()


@pytest.mark.parametrize(
    "values, form",
    [(LLAMA, {}), (JETMOE, {})] + [(values, {"form": form}) for values in LATENT for form in ("released", "ideal")],
)
@torch.no_grad()
def test_loaded_model_equals_transformers(values, form):
    theirs = make_theirs(values)
    state = theirs.state_dict()
    ours = load_hugging_face(make_config(values | form), state)
    # their routers work in float32 whatever the model's dtype
    torch.testing.assert_close(ours(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
    number = sum(p.numel() for p in ours.parameters())
    assert number == sum(p.numel() for p in theirs.parameters())
    assert number == ledger_of(ours.config, dict(batch_size=1, seq_len=7)).params
    assert all(parameter.requires_grad for parameter in ours.parameters())
    if values is LLAMA:
        # tensors are renamed without a copy
        assert {p.data_ptr() for p in ours.parameters()} == {tensor.data_ptr() for tensor in state.values()}
    if values is JETMOE:
        return
    if values in LATENT:
        # rows in another order are copies
        parts = ("q_proj", "q_rotary_proj", "kv_down_proj", "k_rotary_proj", "k_proj", "v_proj")
        made = {getattr(ours.layers[1].self_attn, part).weight.untyped_storage().data_ptr() for part in parts}
        assert made.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in state.values())
    own = "model.layers.1.self_attn."
    alone = {name.removeprefix(own): tensor for name, tensor in state.items() if name.startswith(own)}
    layer, x = load_hugging_face(ours.config.layers[1], alone), features(2, 7, 12).float()
    rotary = rotary_table(7, ours.config.attention.rotary_width, 1e4)
    assert_close(layer(x, rotary=rotary), ours.layers[1].self_attn(x, rotary=rotary))


WRONG = {
    "model.layers.1.mlp.up_proj.weight": (LLAMA, None),
    "model.layers.1.self_attn.k_proj.weight": (LLAMA, (24, 12)),
    "model.layers.2.mlp.up_proj.weight": (LLAMA, (1,)),
    "model.layers.0.mlp.input_linear.weight": (JETMOE, (5, 14, 12)),
    "model.layers.0.self_attention.kv_proj.weight": (JETMOE, (6, 12)),
    "model.layers.1.self_attention.experts.bias": (JETMOE, None),
    "model.layers.1.self_attn.q_proj.weight": (LATENT[0], (5, 12)),
    "model.layers.1.self_attn.q_proj.bias": (LATENT[0], (5,)),
    "model.layers.1.self_attn.kv_b_proj.weight": (LATENT[2], None),
    "model.layers.1.self_attn.q_a_proj.weight": (LATENT[2], (5, 12)),
}


@pytest.mark.parametrize("name", WRONG)
def test_missing_extra_or_misshapen_tensor_raises(name):
    values, shape = WRONG[name]
    state = make_theirs(values).state_dict()
    had = state.pop(name, None)
    message = f"^the state dict has no {name}$"
    if shape:
        state[name] = torch.zeros(shape)
        is_extra = f"^the model has no place for {name}$"
        message = is_extra if had is None else rf"^{name} is \({shape[0]},.*\), which gives no .* of \("
    with pytest.raises(ConfigError, match=message):
        load_hugging_face(make_config(values), state)


def test_model_without_hugging_face_names_raises():
    config = make_config(LLAMA | dict(attention="moh", num_shared_heads=2, top_k=1))
    with pytest.raises(ConfigError, match="layers.0.self_attn.router.routed_proj.weight"):
        load_hugging_face(config, {})
    masked = make_config(dict(WIDTHS, model="masked_lm", attention="mha", num_heads=3, max_positions=9))
    with pytest.raises(ConfigError, match="masked_lm .*choose from llama, jetmoe, layer$"):
        load_hugging_face(masked, {})
