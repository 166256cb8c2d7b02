"""Mixture of attention heads: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Implementation, fields_of

EVERY_EXPERT = (("top_k", "num_experts"),)
"""What an implementation executes that runs all E experts for every token."""


class Gates(StrEnum):
    """Weights of a token's K experts. ``printed``: probabilities over their sum, which gets no gradient (Eq. 9).
    ``released``: the probabilities themselves, as the authors' code does. ``selected``: a softmax over the K logits
    with its gradient (Eq. 2 of the paper's preliminaries, and JetMoE), of the values of ``printed``."""

    PRINTED = "printed"
    RELEASED = "released"
    SELECTED = "selected"


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentionHeadsConfig(AttentionConfig):
    """K of E attention experts of width D per token, with one shared key and value head (arXiv 2210.05144).

    ``gates``: how experts are weighed, one of ``Gates``. ``noisy``: the noise of Eq. 3 on the router's logits in
    training. With ``num_kv_heads`` = g above 1 an expert is g heads of width D / g on as many shared key/value heads,
    as in JetMoE, which has an ``output_bias`` too: one that is added after the sum over experts.
    """

    module: ClassVar[str | None] = "MixtureOfAttentionHeads"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "E", "K", "D", "g", "bias", "output_bias", "gates", "noisy"
    )
    routing_letters: ClassVar[tuple[str, ...]] = ("K", "E")
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "moa:reference", timed=False),
        Implementation("gathered", "moa:gathered", timed=False, few_rows=True),
        Implementation("dense-all", "kernels.dense_all:dense_all", executes=EVERY_EXPERT),
        Implementation("compiled", "kernels.compiled:moa", timed=False, package="triton", executes=EVERY_EXPERT),
        Implementation("grouped", "kernels.grouped:grouped", one_graph=False),
        Implementation("loop", "kernels.loop:loop"),
        Implementation("triton", "kernels.triton_moa:run", package="triton"),
    )
    rotary: ClassVar[str | None] = "kv_head_dim"
    steerable: ClassVar[bool] = True
    divides: ClassVar[Mapping[str, str]] = {"num_kv_heads": "head_dim"}

    d_model: int
    num_experts: int
    top_k: int
    head_dim: int
    num_kv_heads: int = 1
    bias: bool = False
    output_bias: bool = False
    gates: Gates | str = Gates.PRINTED
    noisy: bool = False
    attention_dropout: float = 0.0
    balance_loss_weight: float = 0.01
    z_loss_weight: float = 0.001

    @property
    def kv_head_dim(self) -> int:
        """c = D / g, the width of a key/value head."""
        return self.head_dim // self.num_kv_heads
