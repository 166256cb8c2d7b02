"""Dense decoders: transformers' GPT-2 with the same weights, and PaLM's parallel layer."""

import pytest
import torch
import torch.nn.functional as F

from headcount.models.build import build
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from headcount.models.rotary import rotary_table
from tests.cases import MODEL_FIELDS, assert_close, features, randomise

GPT2 = {"ln_1": "self_attn_norm", "ln_2": "feed_forward_norm", "attn.c_proj": "self_attn.out_proj",
        "mlp.c_fc": "feed_forward.fc1", "mlp.c_proj": "feed_forward.fc2"}  # fmt: skip


@torch.no_grad()
def test_learned_positions_match_gpt2():
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    sizes = dict(vocab_size=41, n_positions=19, n_embd=22, n_layer=3, n_head=2, n_inner=29)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(activation_function="gelu", **sizes)).double().eval()
    model = randomise(build(make_config(MODEL_FIELDS["decoder-learned"]), dtype=torch.float64))
    own = model.state_dict()
    state = {"wte.weight": own["embedding.weight"], "wpe.weight": own["position_embedding.weight"]}
    for kind in ("weight", "bias"):
        state[f"ln_f.{kind}"] = own[f"norm.{kind}"]
        for i in range(3):
            inward = [own[f"layers.{i}.self_attn.{name}.{kind}"] for name in ("q_proj", "k_proj", "v_proj")]
            parts = {name: own[f"layers.{i}.{ours}.{kind}"] for name, ours in GPT2.items()}
            for name, tensor in {**parts, "attn.c_attn": torch.cat(inward)}.items():
                # their matrices are (in, out)
                state[f"h.{i}.{name}.{kind}"] = tensor.T if tensor.dim() == 2 else tensor
    theirs.transformer.load_state_dict(state)
    tokens = torch.randint(41, (2, 13), generator=torch.Generator().manual_seed(5))
    assert_close(model(tokens), theirs(tokens).logits)


@torch.no_grad()
def test_parallel_layer_matches_equation():
    model = randomise(build(make_config(MODEL_FIELDS["decoder-parallel"]), dtype=torch.float64))
    layer, x = model.layers[0], features(2, 7, 22)
    rotary = rotary_table(7, 10, 10000.0, dtype=torch.float64)
    y = x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * layer.self_attn_norm.weight
    gate, up, down = (getattr(layer.feed_forward, f"{name}_proj").weight.T for name in ("gate", "up", "down"))
    fed = (F.silu(y @ gate) * (y @ up)) @ down
    assert_close(layer(x, rotary), x + layer.self_attn(y, causal=True, rotary=rotary) + fed)


def test_unusable_decoders_raise():
    with pytest.raises(ConfigError, match="^decoder has a closed form only, no module$"):
        build(preset("chinchilla-70b"), device="meta")
    with pytest.raises(ConfigError, match="^seq_len must be at most context_len = 2048, not 2049; set context_len"):
        preset("gpt3-175b").inputs({"batch_size": 1, "seq_len": 2049})
    with pytest.raises(ConfigError, match="^head_dim must be even for rotary positions, not 11$"):
        make_config(MODEL_FIELDS["decoder-parallel"] | {"head_dim": 11})
