"""JetMoE (arXiv 2404.07413): a LLaMA of attention experts and feed-forward experts. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.llama import LlamaConfig


@dataclass(frozen=True, kw_only=True)
class JetMoEConfig(LlamaConfig):
    """A LLaMA whose feed-forward blocks are mixtures with an output bias, and whose output is tied to the embedding.

    In the authors' models attention is MoA, with several key/value heads and an output bias too. ``block_norm_eps`` and
    ``final_norm_eps``: of the norms before each block, and of the last one.
    """

    module: ClassVar[str | None] = "JetMoE"
    mixture_output_bias: ClassVar[bool] = True
    tied: ClassVar[bool] = True
    minimum: ClassVar[Mapping[str, int]] = {**LlamaConfig.minimum, "ffn_num_experts": 1}

    context_len: int = 4096
    rope_theta: float = 10000.0
    block_norm_eps: float = 1e-6
    final_norm_eps: float = 1e-5
