"""MACs of models of many families, built from a config.json, against formulas by hand."""

from importlib.util import find_spec

import pytest

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

T, U, V = 13, 7, 53
"""Tokens of a text, of the text of a decoder, and of the vocabulary."""


def heads(t, d, h, d_h, g=None, s=None, d_s=None):
    """Return MACs of attention: t tokens of width d over s of width d_s, g of h heads for keys and values."""
    s, d_s, g = s or t, d_s or d, g or h
    return t * d * h * d_h + s * d_s * 2 * g * d_h + 2 * h * t * s * d_h + t * h * d_h * d


def block(t, d, h, d_h, ff, g=None, matrices=2):
    """Return MACs of a layer: attention and a feed-forward of two matrices, of three where it is gated."""
    return heads(t, d, h, d_h, g) + matrices * t * d * ff


def experts(t, d, number, k, ff, shared=0):
    """Return MACs of a router and the k gated experts of each token."""
    return t * d * number + 3 * t * d * ff * (k + shared)


def cross(t, s, d, h, ff):
    """Return MACs of a decoder layer: self-attention, attention over s tokens of the encoder, feed-forward."""
    return heads(t, d, h, d // h) + heads(t, d, h, d // h, s=s) + 2 * t * d * ff


def basic(pixels, c_in, c_out, stride=1):
    """Return MACs of a residual block of ResNet-18."""
    after = pixels // stride**2
    shortcut = after * c_in * c_out if c_in != c_out else 0
    return shortcut + after * 9 * c_in * c_out + after * 9 * c_out**2


def residual(pixels, c_in, c_out):
    """Return MACs of a residual block of the UNet, with a time embedding of width 32."""
    shortcut = pixels * c_in * c_out if c_in != c_out else 0
    return pixels * 9 * c_in * c_out + 32 * c_out + pixels * 9 * c_out**2 + shortcut


def spatial(pixels, c, s, d_s):
    """Return MACs of a UNet transformer: self-attention, attention over s tokens, gated feed-forward."""
    return heads(pixels, c, 1, c) + heads(pixels, c, 1, c, s=s, d_s=d_s) + pixels * (2 * c * c + c * 8 * c + 4 * c * c)


DECODER = dict(
    hidden_size=20, head_dim=6, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=V, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
WIDE = {**DECODER, "hidden_size": 24}
MASKED = dict(
    hidden_size=20, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4, vocab_size=V,
    max_position_embeddings=34,
)  # fmt: skip
BOTH = dict(
    d_model=20, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=28, decoder_ffn_dim=24, vocab_size=V,
)  # fmt: skip
VISION = dict(
    hidden_size=20, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4, image_size=21, patch_size=7
)
TEXT = {**MASKED, "num_hidden_layers": 2, "max_position_embeddings": 11}
TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
HEAD, LENGTH = T * 20 * V, {"seq_len": T}
LLAMA = 3 * block(T, 24, 4, 6, 32, 2, 3) + T * 24 * V
GATED = 3 * block(T, 20, 4, 6, 32, 2, 3) + HEAD
PATCHES = 9 * 3 * 7 * 7 * 20
VIT = PATCHES + 3 * block(10, 20, 4, 5, 28)
TWO_STACKS = 3 * block(T, 20, 4, 5, 28) + 2 * cross(U, T, 20, 4, 24) + U * 20 * V
LLAVA = {
    "vision_feature_select_strategy": "default", "vision_feature_layer": -1, "image_token_index": 50,
    "text_config": {"model_type": "llama", **WIDE}, "vision_config": {"model_type": "clip_vision_model", **VISION},
}  # fmt: skip
GEMMA = {
    "image_token_index": 50, "mm_tokens_per_image": 4, "text_config": {"model_type": "gemma3_text", **DECODER},
    "vision_config": {"model_type": "siglip_vision_model", **VISION, "image_size": 28, "vision_use_head": False},
}  # fmt: skip
ROTARY = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
QWEN_VL = {
    "image_token_id": 50, "video_token_id": 51, "vision_start_token_id": 48, "vision_end_token_id": 49,
    "text_config": {
        "model_type": "qwen2_5_vl_text", **DECODER, "hidden_size": 16, "head_dim": 8, "num_attention_heads": 2,
        "num_key_value_heads": 1, "rope_parameters": ROTARY,
    },
    "vision_config": {
        "depth": 2, "hidden_size": 16, "intermediate_size": 28, "num_heads": 2, "patch_size": 7, "out_hidden_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 28, "fullatt_block_indexes": [1],
    },
}  # fmt: skip
QWEN_VL_TEXT = 3 * block(T, 16, 2, 8, 32, 1, 3) + T * 16 * V
# 6 x 6 patches: windows of 16, 8, 8 and 4 in the first layer
QWEN_VL_IMAGE = 36 * 3 * 2 * 49 * 16 + 2 * (4 * 36 * 16**2 + 3 * 36 * 16 * 28) + 2 * 16 * (400 + 36**2)
RESNET = {"embedding_size": 5, "hidden_sizes": [8, 12]}
STEM = 16 * 16 * 7 * 7 * 3 * 5
DEEPSEEK = dict(
    q_lora_rank=11, kv_lora_rank=7, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, n_routed_experts=8,
    num_experts_per_tok=2, n_group=2, topk_group=1, n_shared_experts=1, moe_intermediate_size=16,
    first_k_dense_replace=1, num_key_value_heads=4, head_dim=4,
)  # fmt: skip
LATENT = T * 24 * 11 + T * 11 * 40 + T * 24 * 11 + T * 7 * 4 * 11 + 4 * T * T * 15 + T * 20 * 24
DEBERTA = dict(
    relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"], share_att_key=True,
    norm_rel_ebd="layer_norm", position_biased_input=False,
)  # fmt: skip
# 16 relative positions, projected as queries and as keys, by each head of each layer
RELATIVE = 3 * (2 * 16 * 20 * 20 + 2 * 4 * T * 16 * 5)
MAMBA = dict(
    hidden_size=8, num_hidden_layers=2, num_heads=4, head_dim=4, expand=2, state_size=5, n_groups=1, chunk_size=8,
    vocab_size=V, **TOKENS,
)  # fmt: skip
# two chunks of 8: scores, weighted values, states, states across chunks, outputs of states
CHUNKS = 2 * 8 * 8 * 4 * (5 + 4) + 2 * 8 * 4 * 4 * 5 + 4 * 3 * 3 * 4 * 5 + 2 * 8 * 4 * 4 * 5
JAMBA = dict(
    num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
    num_experts=3, num_experts_per_tok=2, mamba_d_state=5, mamba_dt_rank=3, use_mamba_kernels=False,
)  # fmt: skip
JAMBA_SCAN = U * 24 * 96 + (U + 3) * 48 * 4 + U * 48 * 13 + U * 3 * 48 + U * 48 * 5 + U * 48 * 24
SAM = {
    "vision_config": dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8, output_channels=8,
        num_pos_feats=4, window_size=3, global_attn_indexes=[1], mlp_dim=28,
    ),
    "prompt_encoder_config": dict(hidden_size=8, image_size=32, patch_size=8, mask_input_channels=4),
    "mask_decoder_config": dict(
        hidden_size=8, mlp_dim=12, num_attention_heads=2, num_hidden_layers=2, iou_head_hidden_dim=8
    ),
}  # fmt: skip
# windows of 3 x 3 over 4 x 4 patches: 36 tokens with their padding; relative positions by row and by column
SAM_IMAGE = (
    16 * 3 * 64 * 16 + 4 * 36 * 16**2 + 2 * 36 * 9 * 16 + 2 * 36 * 3 * 16 + 4 * 16 * 16**2 + 2 * 16 * 16 * 16
    + 2 * 16 * 4 * 16 + 2 * 2 * 16 * 16 * 28 + 16 * 16 * 8 + 16 * 9 * 8 * 8
)  # fmt: skip
# 5 tokens over 16 places and back, of width 4 inside
SAM_TOKENS, SAM_PLACES = heads(5, 8, 2, 2, s=16), heads(16, 8, 2, 2, s=5)
SAM_MASKS = (
    16 * 2 * 4 + 2 * (heads(5, 8, 2, 4) + SAM_TOKENS + 2 * 5 * 8 * 12 + SAM_PLACES) + SAM_TOKENS
    + 16 * 4 * 8 * 2 + 64 * 4 * 2 * 1 + 4 * (64 + 64 + 8) + 4 * 256 + 64 + 64 + 32
)  # fmt: skip
UNET = {
    "_class_name": "UNet2DConditionModel", "sample_size": 8, "in_channels": 4, "out_channels": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "block_out_channels": [8, 16],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "layers_per_block": 1, "cross_attention_dim": 12,
    "attention_head_dim": 4, "norm_num_groups": 4,
}  # fmt: skip
UNET_MACS = (
    8 * 32 + 32 * 32 + 64 * 9 * 4 * 8
    + residual(64, 8, 8) + spatial(64, 8, U, 12) + 16 * 9 * 8 * 8 + residual(16, 8, 16)
    + 2 * residual(16, 16, 16) + spatial(16, 16, U, 12)
    + residual(16, 32, 16) + residual(16, 24, 16) + 64 * 9 * 16 * 16
    + residual(64, 24, 8) + residual(64, 16, 8) + 2 * spatial(64, 8, U, 12) + 64 * 9 * 8 * 4
)  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "in_channels": 8, "num_layers": 1, "num_single_layers": 2,
    "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 12, "pooled_projection_dim": 10,
    "guidance_embeds": True, "axes_dims_rope": [4, 4, 8],
}  # fmt: skip
# 9 patches of the image and 7 tokens of the text
FLUX_MACS = (
    9 * 8 * 32 + U * 12 * 32 + 2 * (256 * 32 + 32 * 32) + 10 * 32 + 32 * 32
    + 2 * 32 * 6 * 32 + heads(16, 32, 2, 16) + 2 * 16 * 32 * 128
    + 2 * (32 * 3 * 32 + heads(16, 32, 2, 16) + 2 * 16 * 32 * 128) + 32 * 2 * 32 + 9 * 32 * 8
)  # fmt: skip
TIMM = {"architecture": "vit_tiny_patch16_224", "num_classes": 7}

FAMILIES = {
    "llama-3.1": ("llama", "LlamaForCausalLM", {**WIDE, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }}, LENGTH, LLAMA),
    "mistral": ("mistral", "MistralForCausalLM", {**DECODER, "sliding_window": 5}, LENGTH, GATED),
    "qwen2.5": ("qwen2", "Qwen2ForCausalLM", WIDE, LENGTH, LLAMA),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", DECODER, LENGTH, GATED),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", DECODER, LENGTH, GATED),
    "deepseek-v3": ("deepseek_v3", "DeepseekV3ForCausalLM", {**WIDE, **DEEPSEEK}, LENGTH,
                    3 * LATENT + 3 * T * 24 * 32 + 2 * experts(T, 24, 8, 2, 16, 1) + T * 24 * V),
    "mixtral": ("mixtral", "MixtralForCausalLM", {**WIDE, "num_local_experts": 5, "num_experts_per_tok": 2}, LENGTH,
                3 * (heads(T, 24, 4, 6, 2) + experts(T, 24, 5, 2, 32)) + T * 24 * V),
    "qwen3-moe": ("qwen3_moe", "Qwen3MoeForCausalLM",
                  {**WIDE, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16}, LENGTH,
                  3 * (heads(T, 24, 4, 6, 2) + experts(T, 24, 5, 2, 16)) + T * 24 * V),
    "gpt-oss": ("gpt_oss", "GptOssForCausalLM", {**WIDE, "num_local_experts": 5, "num_experts_per_tok": 2}, LENGTH,
                3 * (heads(T, 24, 4, 6, 2) + experts(T, 24, 5, 2, 32)) + T * 24 * V),
    "gpt2": ("gpt2", "GPT2LMHeadModel",
             {"n_embd": 20, "n_layer": 3, "n_head": 4, "vocab_size": V, "n_positions": 64}, LENGTH,
             3 * block(T, 20, 4, 5, 80) + HEAD),
    "neox": ("gpt_neox", "GPTNeoXForCausalLM", {**MASKED, "hidden_size": 24}, LENGTH,
             3 * block(T, 24, 4, 6, 28) + T * 24 * V),
    "phi": ("phi", "PhiForCausalLM", {**MASKED, "hidden_size": 32}, LENGTH, 3 * block(T, 32, 4, 8, 28) + T * 32 * V),
    "bert": ("bert", "BertForMaskedLM", MASKED, LENGTH, 3 * block(T, 20, 4, 5, 28) + T * 20 * 20 + HEAD),
    "roberta": ("roberta", "RobertaForMaskedLM", MASKED, LENGTH, 3 * block(T, 20, 4, 5, 28) + T * 20 * 20 + HEAD),
    "deberta": ("deberta-v2", "DebertaV2ForMaskedLM", {**MASKED, **DEBERTA}, LENGTH,
                3 * block(T, 20, 4, 5, 28) + RELATIVE + T * 20 * 20 + HEAD),
    "t5": ("t5", "T5ForConditionalGeneration",
           {"d_model": 20, "d_kv": 6, "d_ff": 28, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4,
            "vocab_size": V}, {**LENGTH, "tgt_len": U},
           3 * block(T, 20, 4, 6, 28) + 2 * (block(U, 20, 4, 6, 28) + heads(U, 20, 4, 6, s=T)) + U * 20 * V),
    "bart": ("bart", "BartForConditionalGeneration", {**BOTH, "max_position_embeddings": 31},
             {**LENGTH, "tgt_len": U}, TWO_STACKS),
    "marian": ("marian", "MarianMTModel", {**BOTH, "max_position_embeddings": 32, "pad_token_id": 52,
               "decoder_start_token_id": 52, "eos_token_id": 0}, {**LENGTH, "tgt_len": U}, TWO_STACKS),
    "vit": ("vit", "ViTForImageClassification", VISION, {}, VIT + 20 * 2),
    "dinov2": ("dinov2", "Dinov2Model", {**VISION, "mlp_ratio": 2}, {}, PATCHES + 3 * block(10, 20, 4, 5, 40)),
    "swin": ("swin", "SwinForImageClassification",
             {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4],
              "window_size": 4}, {},
             256 * 12 * 8 + 2 * 16 * block(16, 8, 2, 4, 32) + 64 * 32 * 16 + 2 * 4 * block(16, 16, 4, 4, 64) + 16 * 2),
    "resnet": ("resnet", "ResNetForImageClassification", {**RESNET, "depths": [2, 1], "layer_type": "basic"},
               {"image_size": 32},
               STEM + basic(64, 5, 8) + basic(64, 8, 8) + basic(64, 8, 12, 2) + 12 * 2),
    "clip": ("clip", "CLIPModel", {"projection_dim": 6, "text_config": TEXT, "vision_config": VISION}, {},
             VIT + 2 * block(11, 20, 4, 5, 28) + 2 * 20 * 6 + 6),
    "siglip": ("siglip", "SiglipModel", {"text_config": TEXT, "vision_config": VISION}, {},
               PATCHES + 3 * block(9, 20, 4, 5, 28) + heads(1, 20, 4, 5, s=9) + 2 * 20 * 28
               + 2 * block(11, 20, 4, 5, 28) + 20 * 20 + 20),
    "whisper": ("whisper", "WhisperForConditionalGeneration",
                {**BOTH, **TOKENS, "num_mel_bins": 5, "max_source_positions": 17, "max_target_positions": 23,
                 "decoder_start_token_id": 3}, {"tgt_len": U},
                34 * 3 * 5 * 20 + 17 * 3 * 20 * 20 + 3 * block(17, 20, 4, 5, 28) + 2 * cross(U, 17, 20, 4, 24)
                + U * 20 * V),
    "wav2vec2": ("wav2vec2", "Wav2Vec2ForCTC",
                 {**MASKED, "num_hidden_layers": 2, "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3],
                  "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2},
                 {"inputs": ["1,400"]},
                 79 * 10 * 8 + 39 * 3 * 8 * 8 + 39 * 8 * 20 + 40 * 8 * 10 * 20 + 2 * block(39, 20, 4, 5, 28)
                 + 39 * 20 * V),
    "llava-text": ("llava", "LlavaForConditionalGeneration", LLAVA, LENGTH, LLAMA),
    "llava-image": ("llava", "LlavaForConditionalGeneration", LLAVA, {**LENGTH, "images": 1},
                    LLAMA + VIT + 9 * (20 * 24 + 24 * 24)),
    "llava-whole-image": ("llava", "LlavaForConditionalGeneration",
                          {**LLAVA, "vision_feature_select_strategy": "full"}, {**LENGTH, "images": 1},
                          LLAMA + VIT + 10 * (20 * 24 + 24 * 24)),
    "gemma3-text": ("gemma3", "Gemma3ForConditionalGeneration", GEMMA, LENGTH, GATED),
    "gemma3-image": ("gemma3", "Gemma3ForConditionalGeneration", GEMMA, {**LENGTH, "images": 2},
                     GATED + 2 * (16 * 147 * 20 + 3 * block(16, 20, 4, 5, 28) + 4 * 20 * 20)),
    "qwen2.5-vl-text": ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", QWEN_VL, LENGTH, QWEN_VL_TEXT),
    "qwen2.5-vl-image": ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", QWEN_VL,
                         {**LENGTH, "images": 1, "image_size": 42},
                         QWEN_VL_TEXT + QWEN_VL_IMAGE + 9 * (64 * 64 + 64 * 16)),
    "mamba2": ("mamba2", "Mamba2ForCausalLM", MAMBA, LENGTH,
               2 * (T * 8 * 46 + 16 * 26 * 4 + T * 16 * 8 + CHUNKS) + T * 8 * V),
    "jamba": ("jamba", "JambaForCausalLM", {**WIDE, **JAMBA}, {"seq_len": U},
              2 * (JAMBA_SCAN + 3 * U * 24 * 32 + heads(U, 24, 4, 6, 2) + experts(U, 24, 3, 2, 32)) + U * 24 * V),
    "detr": ("detr", "DetrForObjectDetection",
             {**BOTH, "encoder_layers": 2, "num_queries": U, "use_timm_backbone": False, "backbone": None,
              "use_pretrained_backbone": False, "backbone_config": {
                  "model_type": "resnet", **RESNET, "depths": [1, 1], "layer_type": "basic",
                  "out_features": ["stage2"]}}, {"image_size": 32},
             STEM + basic(64, 5, 8) + basic(64, 8, 12, 2) + 16 * 12 * 20 + 2 * block(16, 20, 4, 5, 28)
             + 2 * cross(U, 16, 20, 4, 24) + U * 20 * 3 + U * (20 * 20 + 20 * 20 + 20 * 4)),
    "sam": ("sam", "SamModel", SAM, {}, SAM_IMAGE + SAM_MASKS),
    "sd-unet": (None, "diffusers", UNET, {"seq_len": U}, UNET_MACS),
    "flux": (None, "diffusers", FLUX, {"seq_len": U, "image_size": 48}, FLUX_MACS),
    "timm": (None, "timm", TIMM, {}, 196 * 768 * 192 + 12 * block(197, 192, 3, 64, 768) + 192 * 7),
}  # fmt: skip
"""model_type, class or library, configuration, lengths and MACs, by family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_macs_of_family_match_formula(count, family, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    kind, name, config, sizes, macs = FAMILIES[family]
    inputs, lengths = sizes.get("inputs", ()), {key: value for key, value in sizes.items() if key != "inputs"}
    if kind is None and not (find_spec(name) and (name != "timm" or find_spec("torchvision"))):
        pytest.skip(f"{name} is not installed")
    named = {"model_type": kind, "architectures": [name]} if kind else {}
    assert count({**named, **config}, inputs=inputs, lengths=lengths).macs == macs
