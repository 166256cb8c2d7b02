"""Checkpoints with Hugging Face names: the outputs of the models of transformers; wrong tensors raise."""

import pytest
import torch

from headcount.bench.case import ledger_of
from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.hugging_face import load_hugging_face
from headcount.models.rotary import Rotary
from tests.cases import assert_close, features, randomise

WIDTHS = dict(d_model=12, d_ff=14, num_layers=2, vocab_size=31)
LLAMA = dict(model="llama", attention="mha", num_heads=6, num_kv_heads=2, head_dim=4, bias=False, **WIDTHS)
JETMOE = dict(
    model="jetmoe", attention="moa", num_experts=5, top_k=3, head_dim=6, num_kv_heads=3, gates="selected",
    output_bias=True, ffn_num_experts=5, ffn_top_k=3, **WIDTHS,
)  # fmt: skip
MLA = dict(attention="mla", num_heads=3, head_dim=5, rotary_dim=6, value_dim=7, kv_rank=11)
DEEPSEEK = dict(MLA, model="llama", query_rank=17, **WIDTHS)
TOKENS = torch.randint(31, (2, 11), generator=torch.Generator().manual_seed(0))


def transformers():
    return pytest.importorskip("transformers", reason="the optional extra hf is not installed")


def their_llama():
    sizes = dict(hidden_size=12, intermediate_size=14, num_hidden_layers=2, vocab_size=31)
    heads = dict(num_attention_heads=6, num_key_value_heads=2, head_dim=4)
    rope = {"rope_type": "default", "rope_theta": 500000.0}
    package = transformers()
    config = package.LlamaConfig(**sizes, **heads, rms_norm_eps=1e-5, rope_parameters=rope)
    return randomise(package.LlamaForCausalLM(config)).eval()


def their_jetmoe():
    package = transformers()
    config = package.JetMoeConfig(
        hidden_size=12, intermediate_size=14, num_hidden_layers=2, vocab_size=31, num_key_value_heads=3, kv_channels=2,
        num_local_experts=5, num_experts_per_tok=3, rms_norm_eps=1e-5,
    )  # fmt: skip
    return randomise(package.JetMoeForCausalLM(config)).eval()


def their_deepseek():
    package = transformers()
    # every layer dense: their mixtures have shared experts
    config = package.DeepseekV3Config(
        hidden_size=12, intermediate_size=14, num_hidden_layers=2, vocab_size=31, num_attention_heads=3,
        num_key_value_heads=3, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=7, kv_lora_rank=11, q_lora_rank=17,
        first_k_dense_replace=2, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )  # fmt: skip
    return randomise(package.DeepseekV3ForCausalLM(config)).eval()


@pytest.mark.parametrize("make, values", [(their_llama, LLAMA), (their_jetmoe, JETMOE), (their_deepseek, DEEPSEEK)])
@torch.no_grad()
def test_loaded_model_equals_transformers(make, values):
    theirs = make()
    ours = load_hugging_face(make_config(values), theirs.state_dict())
    # their routers work in float32 whatever the model's dtype
    torch.testing.assert_close(ours(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert sum(p.numel() for p in ours.parameters()) == ledger_of(ours.config, dict(batch_size=1, seq_len=7)).params


def theirs_of(state, jetmoe):
    """Our tensors under their names, written out here tensor by tensor."""
    out = {"model.embed_tokens.weight": state["embedding.weight"], "model.norm.weight": state["norm.weight"]}
    if not jetmoe:
        out["lm_head.weight"] = state["output_proj.weight"]
    for i in range(2):
        own, layer = f"layers.{i}.", f"model.layers.{i}."
        out[layer + "input_layernorm.weight"] = state[own + "self_attn_norm.weight"]
        out[layer + "post_attention_layernorm.weight"] = state[own + "feed_forward_norm.weight"]
        if not jetmoe:
            for ours, theirs in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
                out[f"{layer}self_attn.{theirs}_proj.weight"] = state[f"{own}self_attn.{ours}_proj.weight"]
            for name in ("gate", "up", "down"):
                out[f"{layer}mlp.{name}_proj.weight"] = state[f"{own}feed_forward.{name}_proj.weight"]
            continue
        attention, block = layer + "self_attention.", layer + "mlp."
        out[attention + "experts.router.layer.weight"] = state[own + "self_attn.router.proj.weight"]
        out[attention + "experts.input_linear.weight"] = state[own + "self_attn.q_proj.weight"].mT
        out[attention + "experts.output_linear.weight"] = state[own + "self_attn.out_proj.weight"].mT
        out[attention + "experts.bias"] = state[own + "self_attn.output_bias"]
        both = [state[f"{own}self_attn.{name}_proj.weight"] for name in ("k", "v")]
        out[attention + "kv_proj.weight"] = torch.cat(both)
        out[block + "router.layer.weight"] = state[own + "feed_forward.router.proj.weight"]
        both = [state[f"{own}feed_forward.{name}_proj.weight"].mT for name in ("gate", "up")]
        out[block + "input_linear.weight"] = torch.cat(both, dim=1)
        out[block + "output_linear.weight"] = state[own + "feed_forward.down_proj.weight"].mT
        out[block + "bias"] = state[own + "feed_forward.output_bias"]
    return out


@pytest.mark.parametrize("values", [LLAMA, JETMOE], ids=["llama", "jetmoe"])
@torch.no_grad()
def test_state_dict_round_trip(values):
    model = randomise(build(make_config(values)))
    loaded = load_hugging_face(model.config, theirs_of(model.state_dict(), values is JETMOE))
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_renamed_tensors_are_not_copied():
    state = theirs_of(build(make_config(LLAMA)).state_dict(), False)
    loaded = load_hugging_face(make_config(LLAMA), state)
    stored = {tensor.data_ptr() for tensor in state.values()}
    assert {parameter.data_ptr() for parameter in loaded.parameters()} == stored


@pytest.mark.parametrize(
    "values, name, shape",
    [
        (LLAMA, "model.layers.1.mlp.up_proj.weight", None),
        (LLAMA, "model.layers.1.self_attn.k_proj.weight", (24, 12)),
        (LLAMA, "model.layers.2.mlp.up_proj.weight", (1,)),
        (JETMOE, "model.layers.0.mlp.input_linear.weight", (5, 14, 12)),
        (JETMOE, "model.layers.0.self_attention.kv_proj.weight", (6, 12)),
        (JETMOE, "model.layers.1.self_attention.experts.bias", None),
    ],
)
def test_missing_extra_or_misshapen_tensor_raises(values, name, shape):
    model = build(make_config(values))
    state = theirs_of(model.state_dict(), values is JETMOE)
    if shape:
        state[name] = torch.zeros(shape)
    else:
        del state[name]
    with pytest.raises(ConfigError, match=name):
        load_hugging_face(model.config, state)


def deepseek_state(query_rank, bias):
    """Seeded tensors of a DeepSeek attention of d_m = 13 and the sizes of MLA, under its names."""
    shapes = {"kv_a_proj_with_mqa": (11 + 6, 13), "kv_a_layernorm": (11,), "kv_b_proj": (3 * (5 + 7), 11)}
    if query_rank is None:
        shapes["q_proj"] = (3 * (5 + 6), 13)
    else:
        shapes |= {"q_a_proj": (query_rank, 13), "q_a_layernorm": (query_rank,), "q_b_proj": (3 * 11, query_rank)}
    shapes["o_proj"] = (13, 3 * 7)
    biased = [name for name in ("kv_a_proj_with_mqa", "q_a_proj", "o_proj") if bias and name in shapes]
    state = {f"{name}.weight": features(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    return state | {f"{name}.bias": features(shapes[name][0], seed=7) for name in biased}


def deepseek_attention(state, x, angles):
    """Eq. 9-19 of arXiv 2405.04434 for tokens (T, 13), causal: the pairs (2i, 2i + 1) turn as complex numbers."""

    def linear(name, y):
        return y @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    def norm(name, y):
        return y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * state[f"{name}.weight"]

    def turn(y):
        pairs = torch.complex(y[..., 0::2], y[..., 1::2]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.view_as_real(pairs).flatten(-2)

    if "q_proj.weight" in state:
        query = linear("q_proj", x)
    else:
        query = linear("q_b_proj", norm("q_a_layernorm", linear("q_a_proj", x)))
    latent, shared = linear("kv_a_proj_with_mqa", x).split((11, 6), dim=-1)
    keys, values = linear("kv_b_proj", norm("kv_a_layernorm", latent)).view(-1, 3, 12).split((5, 7), dim=-1)
    plain, turned = query.view(-1, 3, 11).split((5, 6), dim=-1)
    shared = turn(shared[:, None]).expand(-1, 3, -1)
    query, key = torch.cat((plain, turn(turned)), -1), torch.cat((keys, shared), -1)
    heads = (y.transpose(0, 1) for y in (query, key, values))
    out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, scale=(5 + 6) ** -0.5)
    return linear("o_proj", out.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("form", ["released", "ideal"])
@pytest.mark.parametrize("query_rank, bias", [(None, False), (17, False), (17, True), (None, True)])
@torch.no_grad()
def test_loaded_latent_attention_turns_interleaved_pairs(query_rank, bias, form):
    state, x = deepseek_state(query_rank, bias), features(2, 7, 13)
    angles = torch.arange(7)[:, None] * 1e4 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    config = make_config(dict(MLA, d_model=13, query_rank=query_rank, bias=bias, form=form))
    out = load_hugging_face(config, state)(x, causal=True, rotary=Rotary(angles.cos(), angles.sin()))
    assert_close(out, torch.stack([deepseek_attention(state, tokens, angles) for tokens in x]))


@pytest.mark.parametrize("name, query_rank", [("q_proj", None), ("kv_b_proj", 17), ("q_a_proj", 17), ("q_b_proj", 17)])
def test_wrong_tensor_of_latent_attention_raises(name, query_rank):
    state, config = deepseek_state(query_rank, False), make_config(dict(MLA, d_model=13, query_rank=query_rank))
    with pytest.raises(ConfigError, match=f"^{name}.weight is \\(5, 13\\), not"):
        load_hugging_face(config, state | {f"{name}.weight": torch.zeros(5, 13)})
    with pytest.raises(ConfigError, match=f"^the model has no place for {name}.bias$"):
        load_hugging_face(config, state | {f"{name}.bias": torch.zeros(5)})
    del state[f"{name}.weight"]
    with pytest.raises(ConfigError, match=f"^the state dict has no {name}.weight$"):
        load_hugging_face(config, state)


def test_model_without_hugging_face_names_raises():
    config = make_config(LLAMA | dict(attention="moh", num_shared_heads=2, top_k=1))
    with pytest.raises(ConfigError, match="layers.0.self_attn.router.routed_proj.weight"):
        load_hugging_face(config, {})
    masked = make_config(dict(WIDTHS, model="masked_lm", attention="mha", num_heads=3, max_positions=9))
    with pytest.raises(ConfigError, match="masked_lm .*choose from llama, jetmoe, layer$"):
        load_hugging_face(masked, {})
