"""Mixture feed-forward blocks: sizes and their validation, and a model's fields for them. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import Implementation, ModelConfig, SymbolicConfig, check_selected, fields_of


@dataclass(frozen=True, kw_only=True)
class MixtureFeedForwardConfig(SymbolicConfig):
    """K of E feed-forward experts of inner width F per token, ``gated`` (SwiGLU, no biases) or plain with biases.

    ``output_bias``: a bias that is added once after the sum over experts, as JetMoE has it.
    """

    module: ClassVar[str | None] = "MixtureFeedForward"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "F", "E", "K", "gated", "output_bias")
    routing_letters: ClassVar[tuple[str, ...]] = ("K", "E")
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "tgt_len": 10}
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "moe_ffn:reference", timed=False),
        Implementation("grouped", "kernels.grouped:grouped_ffn", one_graph=False),
    )

    d_model: int
    d_ff: int
    num_experts: int
    top_k: int
    gated: bool = False
    output_bias: bool = False
    balance_loss_weight: float = 0.01
    z_loss_weight: float = 0.001


@dataclass(frozen=True, kw_only=True)
class TakesMixture(ModelConfig):
    """A model whose feed-forward blocks may be mixtures: ``ffn_top_k`` of ``ffn_num_experts`` experts, 0 for none.

    ``ffn_balance_loss_weight`` and ``ffn_z_loss_weight``: coefficients of the blocks' own auxiliary losses.
    """

    mixture_letters: ClassVar[Mapping[str, str]] = {"E_ff": "ffn_num_experts", "K_ff": "ffn_top_k"}
    mixture_output_bias: ClassVar[bool] = False
    minimum: ClassVar[Mapping[str, int]] = {"ffn_num_experts": 0, "ffn_top_k": 0}

    ffn_num_experts: int = 0
    ffn_top_k: int = 0
    ffn_balance_loss_weight: float = 0.01
    ffn_z_loss_weight: float = 0.001

    def __post_init__(self):
        super().__post_init__()
        least = 1 if self.ffn_num_experts else 0
        check_selected("ffn_top_k", self.ffn_top_k, least, "ffn_num_experts", self.ffn_num_experts)

    @property
    def mixture(self) -> MixtureFeedForwardConfig | None:
        """The block of this model's widths; None for a dense one."""
        return self.mixture_of(self.d_model, self.d_ff)

    def mixture_of(self, d_model: int, d_ff: int) -> MixtureFeedForwardConfig | None:
        """Return the block of these widths; None for a dense one."""
        if not self.ffn_num_experts:
            return None
        return MixtureFeedForwardConfig(
            d_model=d_model,
            d_ff=d_ff,
            num_experts=self.ffn_num_experts,
            top_k=self.ffn_top_k,
            gated=self.gated,
            output_bias=self.mixture_output_bias,
            balance_loss_weight=self.ffn_balance_loss_weight,
            z_loss_weight=self.ffn_z_loss_weight,
        )
