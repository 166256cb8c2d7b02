"""One frozen dataclass per attention variant, with its validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.base import ConfigError, Lettered, at_least, one_of, probability


@dataclass(frozen=True, kw_only=True)
class MultiHeadAttentionConfig(Lettered):
    """h heads; MHA where num_kv_heads is num_heads, GQA or MQA where it is fewer."""

    variant: ClassVar[str] = "mha"
    module: ClassVar[str | None] = "MultiHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "g": "num_kv_heads",
        "bias": "bias",
    }

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads)
        probability(attention_dropout=self.attention_dropout)
        _derive_heads(self)


def _derive_heads(config) -> None:
    """Fill in num_kv_heads and head_dim where they are None, and check them against num_heads."""
    if config.num_kv_heads is None:
        object.__setattr__(config, "num_kv_heads", config.num_heads)
    if config.head_dim is None:
        if config.d_model % config.num_heads:
            raise ConfigError(
                f"num_heads must divide d_model, and {config.num_heads} does not divide {config.d_model}; "
                "choose another num_heads or set head_dim"
            )
        object.__setattr__(config, "head_dim", config.d_model // config.num_heads)
    at_least(1, num_kv_heads=config.num_kv_heads, head_dim=config.head_dim)
    if config.num_heads % config.num_kv_heads:
        raise ConfigError(
            f"num_kv_heads must divide num_heads, and {config.num_kv_heads} does not divide {config.num_heads}"
        )


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentionHeadsConfig(Lettered):
    """K of E attention experts of width D per token, with one shared key and value head (arXiv 2210.05144).

    ``renormalise``: weights of Eq. 9 (default), or the plain probabilities of the released code.
    ``noisy``: Eq. 2-3's noise on the router logits in training.
    """

    variant: ClassVar[str] = "moa"
    module: ClassVar[str | None] = "MixtureOfAttentionHeads"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "E": "num_experts",
        "K": "top_k",
        "D": "head_dim",
        "bias": "bias",
        "noisy": "noisy",
    }
    routing_letters: ClassVar[tuple[str, ...]] = ("K", "E")

    d_model: int
    num_experts: int
    top_k: int
    head_dim: int
    bias: bool = False
    renormalise: bool = True
    noisy: bool = False
    attention_dropout: float = 0.0
    balance_loss_weight: float = 0.01
    z_loss_weight: float = 0.001

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_experts=self.num_experts, top_k=self.top_k, head_dim=self.head_dim)
        probability(attention_dropout=self.attention_dropout)
        at_least(0, balance_loss_weight=self.balance_loss_weight, z_loss_weight=self.z_loss_weight)
        if self.top_k > self.num_experts:
            raise ConfigError(f"top_k must lie in 1..num_experts = 1..{self.num_experts}, not {self.top_k}")


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentiveExpertsConfig(Lettered):
    """MAE (arXiv 2005.06537): h experts, each all heads but one, mixed by a gate on the mean token.

    ``gate_width``: hidden width of the two-layer tanh gate.
    """

    variant: ClassVar[str] = "mae"
    module: ClassVar[str | None] = None
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "G": "gate_width",
        "bias": "bias",
    }

    d_model: int
    num_heads: int
    gate_width: int = 256
    bias: bool = True

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads, gate_width=self.gate_width)
        if self.d_model % self.num_heads:
            raise ConfigError(f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}")

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads


@dataclass(frozen=True, kw_only=True)
class MixtureOfHeadAttentionConfig(Lettered):
    """MoH (arXiv 2410.11842): heads 1..s are shared, and ``top_k`` = r of the h - s others are routed per token.

    ``gates``: ``released`` (renormalised, times r, s and 2) or ``printed`` (Eq. 5-6). ``router``: ``linear``, or
    the parameter-free ``query_norm`` of the LLaMA3 variant, whose gates are 0 and 1. ``implementation``:
    ``dense`` computes every head and then gates it, as the released code does; ``sparse`` computes nothing of a
    head for a token that does not use it, but for its keys and values. Both are the same function.
    """

    variant: ClassVar[str] = "moh"
    module: ClassVar[str | None] = "MixtureOfHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "s": "num_shared_heads",
        "r": "top_k",
        "d_h": "head_dim",
        "g": "num_kv_heads",
        "bias": "bias",
        "router": "router",
        "implementation": "implementation",
    }
    routing_letters: ClassVar[tuple[str, ...]] = ("h", "s", "r")

    d_model: int
    num_heads: int
    num_shared_heads: int
    top_k: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = False
    gates: str = "released"
    router: str = "linear"
    implementation: str = "dense"
    attention_dropout: float = 0.0
    balance_loss_weight: float = 0.01

    def __post_init__(self):
        at_least(1, d_model=self.d_model, num_heads=self.num_heads)
        at_least(0, num_shared_heads=self.num_shared_heads, top_k=self.top_k)
        at_least(0, balance_loss_weight=self.balance_loss_weight)
        probability(attention_dropout=self.attention_dropout)
        one_of(("released", "printed"), gates=self.gates)
        one_of(("linear", "query_norm"), router=self.router)
        one_of(("dense", "sparse"), implementation=self.implementation)
        if self.num_shared_heads > self.num_heads:
            raise ConfigError(
                f"num_shared_heads must lie in 0..num_heads = 0..{self.num_heads}, not {self.num_shared_heads}"
            )
        if self.top_k > self.num_routed_heads:
            raise ConfigError(
                f"top_k must lie in 0..num_heads - num_shared_heads = 0..{self.num_routed_heads}, not {self.top_k}"
            )
        if self.num_shared_heads + self.top_k == 0:
            raise ConfigError("num_shared_heads and top_k must not both be 0: no token would use any head")
        if self.router == "query_norm" and self.top_k and self.num_routed_heads < 2:
            raise ConfigError("router query_norm needs num_heads - num_shared_heads of at least 2, not 1")
        _derive_heads(self)

    @property
    def num_routed_heads(self) -> int:
        """E = h - s, the heads that tokens choose from."""
        return self.num_heads - self.num_shared_heads

    @property
    def num_active_heads(self) -> int:
        """k = s + r, the heads that each token uses."""
        return self.num_shared_heads + self.top_k


AttentionConfig = (
    MultiHeadAttentionConfig
    | MixtureOfAttentionHeadsConfig
    | MixtureOfAttentiveExpertsConfig
    | MixtureOfHeadAttentionConfig
)
