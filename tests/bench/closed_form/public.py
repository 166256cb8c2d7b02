"""Published config.json of models at full width, as far as sizes and costs depend on them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Public:
    """A published model: its parameters as published, and what its layers keep of a token, by hand.

    ``full``: cached numbers of a token in all layers without a window, ``windowed``: in all layers with the window.
    ``state``: numbers of a sequence that do not grow with its tokens.
    """

    config: dict
    params: int
    full: int
    windowed: int = 0
    windows: tuple[int, ...] = ()
    state: int = 0

    def cached(self, tokens):
        """Return the numbers that are cached of so many tokens of a sequence."""
        # a step reads the last window - 1 tokens beside its own
        return self.state + self.full * tokens + sum(self.windowed * min(tokens, window - 1) for window in self.windows)


LAYERS_OF_GPT_OSS = ["sliding_attention", "full_attention"] * 12
FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}

PUBLIC = {
    "llama3-8b": Public(params=8_030_261_248, full=32 * 2 * 8 * 128, config=dict(
        model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=128256, hidden_size=4096,
        intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        max_position_embeddings=8192, rope_theta=500000.0, torch_dtype="bfloat16",
    )),
    "mistral-7b": Public(params=7_241_732_096, full=0, windowed=32 * 2 * 8 * 128, windows=(4096,), config=dict(
        model_type="mistral", architectures=["MistralForCausalLM"], vocab_size=32000, hidden_size=4096,
        intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        max_position_embeddings=32768, sliding_window=4096, torch_dtype="bfloat16",
    )),
    "qwen3-30b-a3b": Public(params=30_532_122_624, full=48 * 2 * 4 * 128, config=dict(
        model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], vocab_size=151936, hidden_size=2048,
        intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=48, num_attention_heads=32,
        num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8, decoder_sparse_step=1,
        norm_topk_prob=True, max_position_embeddings=40960, rope_theta=1000000.0, sliding_window=None,
        torch_dtype="bfloat16",
    )),
    "mixtral-8x7b": Public(params=46_702_792_704, full=32 * 2 * 8 * 128, config=dict(
        model_type="mixtral", architectures=["MixtralForCausalLM"], vocab_size=32000, hidden_size=4096,
        intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=32768, rope_theta=1000000.0,
        sliding_window=None, torch_dtype="bfloat16",
    )),
    # 36 layers of a delta rule with 16 key and 32 value heads of 128, and 12 of attention; convolutions over 4 tokens
    "qwen3-next-80b-a3b": Public(
        params=79_674_391_296, full=12 * 2 * 2 * 256, state=36 * (32 * 128 * 128 + 64 * 128 * 4),
        config=dict(
        model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], vocab_size=151936, hidden_size=2048,
        intermediate_size=5120, moe_intermediate_size=512, shared_expert_intermediate_size=512, num_hidden_layers=48,
        num_attention_heads=16, num_key_value_heads=2, head_dim=256, num_experts=512, num_experts_per_tok=10,
        norm_topk_prob=True, decoder_sparse_step=1, full_attention_interval=4, linear_conv_kernel_dim=4,
        linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32, linear_value_head_dim=128,
        partial_rotary_factor=0.25, rope_theta=10000000.0, max_position_embeddings=262144, torch_dtype="bfloat16",
    )),
    "gpt-oss-20b": Public(
        params=20_914_757_184, full=12 * 2 * 8 * 64, windowed=12 * 2 * 8 * 64, windows=(128,), config=dict(
        model_type="gpt_oss", architectures=["GptOssForCausalLM"], vocab_size=201088, hidden_size=2880,
        intermediate_size=2880, num_hidden_layers=24, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
        num_local_experts=32, num_experts_per_tok=4, sliding_window=128, layer_types=LAYERS_OF_GPT_OSS,
        attention_bias=True, max_position_embeddings=131072, torch_dtype="bfloat16",
    )),
    "deepseek-v3": Public(params=671_026_404_352, full=61 * (512 + 64), config=dict(
        model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], vocab_size=129280, hidden_size=7168,
        intermediate_size=18432, moe_intermediate_size=2048, num_hidden_layers=61, num_attention_heads=128,
        num_key_value_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128,
        v_head_dim=128, n_routed_experts=256, num_experts_per_tok=8, n_group=8, topk_group=4, n_shared_experts=1,
        first_k_dense_replace=3, norm_topk_prob=True, routed_scaling_factor=2.5, max_position_embeddings=163840,
        quantization_config=FP8, torch_dtype="bfloat16",
    )),
    "gemma2-9b": Public(
        params=9_241_705_984, full=21 * 2 * 8 * 256, windowed=21 * 2 * 8 * 256, windows=(4096,), config=dict(
        model_type="gemma2", architectures=["Gemma2ForCausalLM"], vocab_size=256000, hidden_size=3584,
        intermediate_size=14336, num_hidden_layers=42, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
        query_pre_attn_scalar=256, sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        max_position_embeddings=8192, torch_dtype="bfloat16",
    )),
}  # fmt: skip
"""Models by name. DeepSeek-V3 has its parameters without the biases by which routers correct scores: buffers."""
