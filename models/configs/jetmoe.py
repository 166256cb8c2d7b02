"""JetMoE (arXiv 2404.07413): a LLaMA of attention experts and feed-forward experts. Importable without torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headcount.models.configs.base import at_least
from headcount.models.configs.models import LlamaConfig


@dataclass(frozen=True, kw_only=True)
class JetMoEConfig(LlamaConfig):
    """A LLaMA whose feed-forward blocks are mixtures with an output bias, and whose output is tied to the embedding.

    In the authors' models attention is MoA, with several key/value heads and an output bias too. ``block_norm_eps`` and
    ``final_norm_eps``: of the norms before each block, and of the last one.
    """

    variant: ClassVar[str] = "jetmoe"
    module: ClassVar[str | None] = "JetMoE"
    mixture_output_bias: ClassVar[bool] = True

    context_len: int = 4096
    rope_theta: float = 10000.0
    block_norm_eps: float = 1e-6
    final_norm_eps: float = 1e-5

    def __post_init__(self):
        super().__post_init__()
        at_least(1, ffn_num_experts=self.ffn_num_experts)


_8B: dict[str, Any] = {
    "model": "jetmoe",
    "attention": "moa",
    "d_model": 2048,
    "d_ff": 5632,
    "num_layers": 24,
    "vocab_size": 32000,
    "num_experts": 8,
    "top_k": 2,
    "head_dim": 2048,
    "num_kv_heads": 16,
    "output_bias": True,
    "gates": "selected",
    "ffn_num_experts": 8,
    "ffn_top_k": 2,
}
JETMOE_PRESETS: dict[str, dict[str, Any]] = {
    "jetmoe-8b": _8B,
    # of no paper: the same in small, for a laptop and for tests
    "jetmoe-small": {**_8B, "d_model": 256, "d_ff": 512, "num_layers": 4, "head_dim": 256, "num_kv_heads": 4},
}
"""The released model, and one of its shape that trains anywhere."""
