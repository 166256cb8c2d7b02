"""Architectures of transformers on meta, built from their configs, against MACs by hand."""

import pytest
import torch

from headcount.bench.count import count_macs
from headcount.bench.counting.tools import read

transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")

B, T, D, F, V, L, H, G = 2, 11, 48, 56, 61, 2, 4, 2
ROWS, HEAD = B * T, D // H
E, K, INNER = 5, 3, 24
"""Number of experts, experts of a token, and their inner width."""
IDS = {"bos_token_id": 1, "eos_token_id": 2}
SIZES = {"hidden_size": D, "num_hidden_layers": L, "intermediate_size": F, "vocab_size": V}
DECODER = {**SIZES, **IDS, "num_attention_heads": H, "pad_token_id": 0}
GROUPED = {**DECODER, "num_key_value_heads": G}


def projections(kv_heads=H, head=HEAD):
    """Return the MACs of the query, key, value and output projections."""
    return ROWS * (2 * D * H * head + 2 * D * kv_heads * head)


def attention(head=HEAD, queries=T, keys=T):
    return 2 * B * H * queries * keys * head


def glu(inner=F):
    return 3 * ROWS * D * inner


def mlp(inner=F):
    return 2 * ROWS * D * inner


VOCABULARY = ROWS * D * V
GATED = L * (projections(G) + attention() + glu()) + VOCABULARY
"""MACs of a decoder with grouped-query attention, gated feed-forward layers and a language model head."""
SPARSE = L * (projections(G) + attention() + ROWS * D * E + K * glu(INNER)) + VOCABULARY
PLAIN = L * (projections() + attention() + mlp()) + VOCABULARY
GPT = {"n_embd": D, "n_layer": L, "n_head": H, "n_inner": F, "vocab_size": V, **IDS}
EXPERTS = {"num_experts_per_tok": K, "moe_intermediate_size": INNER}

DECODERS = {
    **dict.fromkeys(("Llama", "Mistral", "Qwen2", "Phi3", "Olmo2", "Cohere", "Granite"), (GROUPED, GATED)),
    **dict.fromkeys(("Qwen3", "Gemma", "Gemma2", "Gemma3Text"), ({**GROUPED, "head_dim": HEAD}, GATED)),
    "Phi": (DECODER, PLAIN),
    "Starcoder2": (GROUPED, L * (projections(G) + attention() + mlp()) + VOCABULARY),
    "GPTNeoX": (DECODER, PLAIN),
    "GPT2": (GPT, PLAIN),
    "GPTJ": ({**GPT, "rotary_dim": 4}, PLAIN),
    "OPT": ({**DECODER, "ffn_dim": F, "word_embed_proj_dim": D}, PLAIN),
    # Its feed-forward layers are four times as wide.
    "Bloom": ({**DECODER, "n_layer": L, "n_head": H}, L * (projections() + attention() + mlp(4 * D)) + VOCABULARY),
    "Mixtral": ({**GROUPED, "num_local_experts": E, "num_experts_per_tok": K, "intermediate_size": INNER}, SPARSE),
    "Qwen3Moe": ({**GROUPED, **EXPERTS, "num_experts": E, "head_dim": HEAD, "decoder_sparse_step": 1}, SPARSE),
}
ENCODERS = {
    "Bert": DECODER,
    "Roberta": DECODER,
    "DistilBert": {"dim": D, "n_layers": L, "n_heads": H, "hidden_dim": F, "vocab_size": V},
}


def dispatched_macs(model, **inputs):
    """Return the dispatched MACs without rotary angles, which some versions compute by a product."""
    ledger = count_macs(model, kwargs=inputs).ledger
    return ledger.select(lambda entry: "rotary" not in entry.path).macs


def build(name, config, **settings):
    with torch.device("meta"):
        made = getattr(transformers, config)(**settings)
        return getattr(transformers, name)(made).to(torch.bfloat16)


def tokens():
    return torch.ones(B, T, dtype=torch.long, device="meta")


@pytest.mark.parametrize("name", DECODERS)
def test_decoder(name):
    settings, macs = DECODERS[name]
    model = f"{name.removesuffix('Text')}ForCausalLM" if name != "GPT2" else "GPT2LMHeadModel"
    config = f"{name}Config" if name != "Gemma3Text" else "Gemma3TextConfig"
    assert dispatched_macs(build(model, config, **settings), input_ids=tokens()) == macs


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name):
    model = build(f"{name}ForMaskedLM", f"{name}Config", **ENCODERS[name])
    assert dispatched_macs(model, input_ids=tokens()) == PLAIN + ROWS * D * D


def test_encoder_decoder():
    source = 7
    model = build(
        "T5ForConditionalGeneration", "T5Config", d_model=D, d_kv=HEAD, d_ff=F, num_layers=L, num_heads=H,
        vocab_size=V, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    ids = torch.ones(B, source, dtype=torch.long, device="meta")
    encoder = L * (B * source * (4 * D * D + 3 * D * F) + attention(queries=source, keys=source))
    crossed = 2 * ROWS * D * D + 2 * B * source * D * D + attention(keys=source)
    decoder = L * (projections() + attention() + crossed + glu())
    assert dispatched_macs(model, input_ids=ids, decoder_input_ids=tokens()) == encoder + decoder + VOCABULARY


def test_vision_transformer():
    model = build("ViTModel", "ViTConfig", **{**DECODER, "image_size": 20, "patch_size": 5})
    image = torch.ones(B, 3, 20, 20, dtype=torch.bfloat16, device="meta")
    # 16 patches of 5 x 5 x 3 pixels and one class token, which the pooler reads.
    layer = B * 17 * (4 * D * D + 2 * D * F) + attention(queries=17, keys=17)
    assert dispatched_macs(model, pixel_values=image) == L * layer + B * 16 * 75 * D + B * D * D


def test_latent_attention_with_experts():
    rank, query_rank, rope, nope, value, shared = 16, 24, 4, 8, 12, 1
    model = build(
        "DeepseekV3ForCausalLM", "DeepseekV3Config", **{**DECODER, **EXPERTS}, num_key_value_heads=H,
        kv_lora_rank=rank, q_lora_rank=query_rank, qk_rope_head_dim=rope, qk_nope_head_dim=nope, v_head_dim=value,
        n_routed_experts=E, n_shared_experts=shared, n_group=1, topk_group=1, first_k_dense_replace=1,
    )  # fmt: skip
    down = ROWS * D * (query_rank + rank + rope)
    up = ROWS * (query_rank * H * (nope + rope) + rank * H * (nope + value) + H * value * D)
    inside = B * H * T * T * (nope + rope + value)
    sparse = ROWS * D * E + (K + shared) * glu(INNER)
    assert dispatched_macs(model, input_ids=tokens()) == L * (down + up + inside) + glu() + sparse + VOCABULARY


def test_jetmoe_is_explained():
    width = 8
    routing = dict(kv_channels=width, num_key_value_heads=G, num_local_experts=E, num_experts_per_tok=K)
    model = transformers.JetMoeForCausalLM(transformers.JetMoeConfig(**SIZES, **routing))
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))
    # attention experts project to the heads and back; feed-forward experts are gated
    kv = G * width
    inside = ROWS * (D * E + 2 * D * kv + K * 2 * D * kv) + 2 * B * T * T * K * kv
    found = read(model, (), {"input_ids": ids}, label="jetmoe")
    assert found.macs == L * (inside + ROWS * D * E + K * glu()) + VOCABULARY
    assert all(cell.explained and not cell.reason for cell in found.tools), found.tools
