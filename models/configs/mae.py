"""Mixture of attentive experts: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from headcount.models.configs.base import AttentionConfig, Implementation, check_choice, fields_of, reference_and_fused


class Gate(StrEnum):
    """The tokens whose mean a gate reads: all queries, those up to each query, or the encoder's output."""

    SEQUENCE = "sequence"
    RUNNING = "running"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentiveExpertsConfig(AttentionConfig):
    """MAE (arXiv 2005.06537): h experts, each all heads but one, mixed by a gate on the mean token.

    ``gate_width``: hidden width of the two-layer tanh gate. ``gate``: the mean that it reads, ``sequence`` for one
    gate per sequence. The mean of all target tokens would show a decoder later tokens, and no source describes
    the gate of the paper's decoder: ``causal_gate`` is the ``gate`` of its layers, ``memory`` for one gate per
    sequence there too, of the encoder's output, or ``running`` for one per token, of the tokens up to it.
    """

    module: ClassVar[str | None] = "MixtureOfAttentiveExperts"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "h", "d_h", "G", "bias", "gate")
    implementations: ClassVar[tuple[Implementation, ...]] = reference_and_fused("mha")
    # an expert is all heads but one
    minimum: ClassVar[Mapping[str, int]] = {"num_heads": 2}

    d_model: int
    num_heads: int
    head_dim: int | None = None
    gate_width: int = 256
    gate: Gate | str = Gate.SEQUENCE
    causal_gate: Gate | str = Gate.MEMORY
    bias: bool = True
    attention_dropout: float = 0.0

    def __post_init__(self):
        check_choice("causal_gate", self.causal_gate, (Gate.RUNNING, Gate.MEMORY))
        super().__post_init__()

    @property
    def in_decoder(self) -> "MixtureOfAttentiveExpertsConfig":
        """The attention with the gate of causal layers."""
        return replace(self, gate=self.causal_gate)

    @property
    def no_step(self) -> str:
        """Why a gate on the mean of the whole sequence cannot decode step by step."""
        if self.gate == Gate.SEQUENCE:
            return "gate=sequence reads tokens that are not made yet; gate=running or gate=memory decodes"
        return ""
