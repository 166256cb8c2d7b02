"""Mixture-of-head attention: sizes, forms and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from headcount.models.configs.base import AttentionConfig, ConfigError, Form, Implementation, check_selected, fields_of


class Gates(StrEnum):
    """Weights of heads: those of the released code, or Eq. 5-6 of the paper."""

    RELEASED = "released"
    PRINTED = "printed"


class Router(StrEnum):
    """Scores of the routed heads: logits of a matrix, or the norms of their queries."""

    LINEAR = "linear"
    QUERY_NORM = "query_norm"


class HeadSelection:
    """Every token uses the first ``num_shared_heads`` of ``num_heads`` heads, and selects ``top_k`` of the others."""

    num_heads: int
    minimum: ClassVar[Mapping[str, int]] = {"num_shared_heads": 0, "top_k": 0}

    num_shared_heads: int
    top_k: int
    router: str

    def check_selection(self) -> None:
        """Raise ConfigError where a token cannot use num_shared_heads and top_k of the others."""
        check_selected("num_shared_heads", self.num_shared_heads, 0, "num_heads", self.num_heads)
        check_selected("top_k", self.top_k, 0, "num_heads - num_shared_heads", self.num_routed_heads)
        if self.num_shared_heads + self.top_k == 0:
            raise ConfigError("num_shared_heads and top_k must not both be 0: no token would use any head")

    @property
    def num_routed_heads(self) -> int:
        """E = h - s, the heads that tokens choose from."""
        return self.num_heads - self.num_shared_heads

    @property
    def num_active_heads(self) -> int:
        """k = s + r, the heads that each token uses."""
        return self.num_shared_heads + self.top_k

    @property
    def steerable(self) -> bool:
        """Whether heads are chosen by a matrix."""
        return self.router is Router.LINEAR and self.top_k > 0


@dataclass(frozen=True, kw_only=True)
class MixtureOfHeadAttentionConfig(HeadSelection, AttentionConfig):
    """MoH (arXiv 2410.11842): heads 1..s are shared, and ``top_k`` = r of the h - s others are routed per token.

    ``gates``: ``released`` (renormalised, times r, s and 2) or ``printed`` (Eq. 5-6). ``router``: ``linear``, or
    the parameter-free ``query_norm`` of the LLaMA3 variant, whose gates are 0 and 1. ``form``:
    ``released`` computes every head and then gates it, as the released code does; ``ideal`` computes nothing of a
    head for a token that does not use it, but for its keys and values, and for its queries where their norms route.
    Both are the same function; of a ``query_norm`` router's gradient (Eq. 10) ``ideal`` has the part that goes through
    selected heads, since the rest needs the outputs of the others.
    """

    module: ClassVar[str | None] = "MixtureOfHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "h", "s", "r", "d_h", "g", "bias", "router", "form"
    )
    routing_letters: ClassVar[tuple[str, ...]] = ("h", "s", "r")
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "moh:reference", timed=False),
        Implementation("fused", "moh:fused"),
        Implementation("compiled", "kernels.compiled:moh", timed=False, package="triton"),
        Implementation("ragged", "kernels.ragged:ragged", form=Form.IDEAL, gradient=Form.IDEAL, one_graph=False),
        Implementation("triton", "kernels.triton_moh:run", form=Form.IDEAL, package="triton"),
    )
    ideal_attributes: ClassVar[Mapping[str, Any]] = {
        "implementations": (Implementation("reference", "moh:selected_heads"),),
        "columns": (),
    }
    rotary: ClassVar[str | None] = "head_dim"
    columns: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")
    key_value_columns: ClassVar[tuple[str, ...]] = ("k_proj", "v_proj")

    d_model: int
    num_heads: int
    num_shared_heads: int
    top_k: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = False
    gates: Gates | str = Gates.RELEASED
    router: Router | str = Router.LINEAR
    form: Form | str = Form.RELEASED
    attention_dropout: float = 0.0
    balance_loss_weight: float = 0.01

    def __post_init__(self):
        super().__post_init__()
        self.check_selection()
        if self.router is Router.QUERY_NORM and self.top_k and self.num_routed_heads < 2:
            raise ConfigError("router query_norm needs num_heads - num_shared_heads of at least 2, not 1")
