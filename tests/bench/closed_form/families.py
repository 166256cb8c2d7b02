"""Small configurations of families of causal decoders: model_type, class and fields by name."""

V = 53
BASE = dict(
    hidden_size=24, head_dim=6, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=V, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
WIDE = {**BASE, "head_dim": 8, "hidden_size": 32}
WINDOW = {"sliding_window": 5}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LOCAL = {"num_local_experts": 5, "num_experts_per_tok": 2}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 12}
LATENT = dict(
    q_lora_rank=11, kv_lora_rank=7, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, n_routed_experts=8,
    num_experts_per_tok=2, n_group=2, topk_group=1, n_shared_experts=1, moe_intermediate_size=16,
    first_k_dense_replace=1, num_key_value_heads=4, head_dim=4,
)  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
DELTA = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
    linear_conv_kernel_dim=4, full_attention_interval=2,
)  # fmt: skip
GLM_EXPERTS = dict(
    n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, first_k_dense_replace=1,
    n_group=1, topk_group=1,
)  # fmt: skip
MAMBA2 = dict(
    hidden_size=8, num_hidden_layers=2, num_heads=4, head_dim=4, expand=2, state_size=5, n_groups=1, chunk_size=8,
    vocab_size=V, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
JAMBA = dict(
    num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
    num_experts=3, num_experts_per_tok=2, mamba_d_state=5, mamba_dt_rank=3, use_mamba_kernels=False,
)  # fmt: skip
BAMBA = dict(
    attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=12, mamba_d_state=5, mamba_n_groups=1, mamba_chunk_size=8,
    mamba_expand=2,
)  # fmt: skip
FALCON_H1 = dict(mamba_d_ssm=24, mamba_n_heads=4, mamba_d_head=6, mamba_d_state=5, mamba_chunk_size=8)
LLAMA4 = dict(
    num_local_experts=5, num_experts_per_tok=1, interleave_moe_layer_step=1, intermediate_size_mlp=28,
    attention_chunk_size=6, num_hidden_layers=4,
)  # fmt: skip
GPT2 = dict(n_embd=20, n_layer=3, n_head=4, vocab_size=V, n_positions=64)
GPT_NEO = dict(
    hidden_size=20, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=5, vocab_size=V,
    max_position_embeddings=64,
)  # fmt: skip
OPT = dict(
    hidden_size=24, ffn_dim=32, num_hidden_layers=3, num_attention_heads=4, vocab_size=V, max_position_embeddings=64,
    word_embed_proj_dim=24,
)  # fmt: skip

FAMILIES = {
    "llama": ("LlamaForCausalLM", {**BASE, "rope_scaling": LLAMA3}),
    "mistral": ("MistralForCausalLM", {**BASE, **WINDOW}),
    "mixtral": ("MixtralForCausalLM", {**BASE, **LOCAL}),
    "qwen2": ("Qwen2ForCausalLM", {**BASE, **WINDOW, "use_sliding_window": True, "max_window_layers": 1}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**BASE, **SHARED}),
    "qwen3": ("Qwen3ForCausalLM", BASE),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**BASE, **EXPERTS}),
    "qwen3_next": ("Qwen3NextForCausalLM", {**BASE, **SHARED, **DELTA}),
    "gemma": ("GemmaForCausalLM", BASE),
    "gemma2": ("Gemma2ForCausalLM", {**BASE, **WINDOW}),
    "gemma3_text": ("Gemma3ForCausalLM", {**BASE, **WINDOW, "num_hidden_layers": 7}),
    "gpt_oss": ("GptOssForCausalLM", {**BASE, **LOCAL, **WINDOW, "num_hidden_layers": 4}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {**BASE, **LATENT, "topk_method": "greedy"}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**BASE, **LATENT}),
    "glm": ("GlmForCausalLM", WIDE),
    "glm4": ("Glm4ForCausalLM", WIDE),
    "glm4_moe": ("Glm4MoeForCausalLM", {**BASE, **GLM_EXPERTS}),
    "phi": ("PhiForCausalLM", {**WIDE, "num_key_value_heads": 4}),
    "phi3": ("Phi3ForCausalLM", {**WIDE, **WINDOW}),
    "phimoe": ("PhimoeForCausalLM", {**WIDE, **WINDOW, **LOCAL}),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt_neox": ("GPTNeoXForCausalLM", BASE),
    "gptj": ("GPTJForCausalLM", {**GPT2, "n_embd": 24, "n_head": 3, "rotary_dim": 4}),
    "gpt_neo": ("GPTNeoForCausalLM", GPT_NEO),
    "bloom": ("BloomForCausalLM", dict(hidden_size=24, n_layer=3, n_head=4, vocab_size=V)),
    "falcon": ("FalconForCausalLM", dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, vocab_size=V)),
    "opt": ("OPTForCausalLM", OPT),
    "mpt": ("MptForCausalLM", dict(d_model=24, n_heads=4, n_layers=3, vocab_size=V, max_seq_len=64)),
    "starcoder2": ("Starcoder2ForCausalLM", {**BASE, **WINDOW}),
    "olmo": ("OlmoForCausalLM", BASE),
    "olmo2": ("Olmo2ForCausalLM", BASE),
    "olmoe": ("OlmoeForCausalLM", {**BASE, "num_experts": 5, "num_experts_per_tok": 2}),
    "cohere": ("CohereForCausalLM", BASE),
    "cohere2": ("Cohere2ForCausalLM", {**BASE, **WINDOW, "num_hidden_layers": 4}),
    "granite": ("GraniteForCausalLM", BASE),
    "granitemoe": ("GraniteMoeForCausalLM", {**BASE, **LOCAL}),
    "stablelm": ("StableLmForCausalLM", WIDE),
    "nemotron": ("NemotronForCausalLM", WIDE),
    "persimmon": ("PersimmonForCausalLM", {**WIDE, "num_key_value_heads": 4}),
    "smollm3": ("SmolLM3ForCausalLM", BASE),
    "ernie4_5": ("Ernie4_5ForCausalLM", BASE),
    "exaone4": ("Exaone4ForCausalLM", {**BASE, **WINDOW, "sliding_window_pattern": 2}),
    "seed_oss": ("SeedOssForCausalLM", BASE),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", BASE),
    "llama4_text": ("Llama4ForCausalLM", {**BASE, **LLAMA4}),
    "mamba": ("MambaForCausalLM", dict(hidden_size=8, num_hidden_layers=2, state_size=5, vocab_size=V, expand=2)),
    "mamba2": ("Mamba2ForCausalLM", MAMBA2),
    "jamba": ("JambaForCausalLM", {**BASE, **JAMBA}),
    "bamba": ("BambaForCausalLM", {**BASE, **BAMBA}),
    "falcon_h1": ("FalconH1ForCausalLM", {**BASE, **FALCON_H1}),
    "lfm2": ("Lfm2ForCausalLM", {**BASE, "full_attn_idxs": [1], "conv_L_cache": 3, "block_ff_dim": 32}),
}  # fmt: skip
"""Class and fields by model_type."""
REFUSED = {
    "minimax": (
        "MiniMaxForCausalLM",
        {**BASE, **LOCAL, "block_size": 8},
        "model.layers.1.self_attn.output_gate linear is not in the runs of all lengths",
    ),
    "t5": ("T5ForConditionalGeneration", dict(d_model=20, d_kv=6, d_ff=28, num_layers=2, num_heads=4, vocab_size=V),
           "decoder_input_ids"),
    "bert": ("BertForMaskedLM", dict(hidden_size=20, num_hidden_layers=2, num_attention_heads=4, vocab_size=V),
             "takes no cache"),
}  # fmt: skip
"""Class, fields and the reason, of models without a closed form."""
ERNIE = {
    "model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"], **BASE, "moe_num_experts": 5,
    "moe_k": 2, "moe_intermediate_size": 16, "moe_layer_start_index": 1,
}  # fmt: skip
"""A configuration with frozen weights: the biases of its routers' scores."""


def config(kind: str) -> dict:
    """Return the configuration of a family."""
    cls, fields, *_ = FAMILIES.get(kind) or REFUSED[kind]
    return {"model_type": kind, "architectures": [cls], **fields}
