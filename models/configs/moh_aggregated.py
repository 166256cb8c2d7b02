"""Mixture of heads over aggregated attention: sizes and their validation. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headcount.models.configs.aggregated import AggregatedAttentionConfig
from headcount.models.configs.base import Form, Implementation, fields_of
from headcount.models.configs.moh import Gates, HeadSelection, Router


@dataclass(frozen=True, kw_only=True)
class MixtureOfHeadAggregatedConfig(HeadSelection, AggregatedAttentionConfig):
    """MoH-ViT's attention (arXiv 2410.11842): aggregated attention whose heads each token selects, ``num_shared_heads``
    = s and ``top_k`` = r of the others. ``gates`` and ``form`` as MoH has them."""

    module: ClassVar[str | None] = "MixtureOfHeadAggregatedAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of(
        "d_m", "h", "d_h", "T", "M", "N_pos", "d_pos", "s", "r", "form"
    )
    routing_letters: ClassVar[tuple[str, ...]] = ("h", "s", "r")
    minimum: ClassVar[Mapping[str, int]] = {**HeadSelection.minimum, **AggregatedAttentionConfig.minimum}
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("reference", "moh_aggregated:reference", masks=False),
    )
    router: ClassVar[Router] = Router.LINEAR

    num_shared_heads: int
    top_k: int
    gates: Gates | str = Gates.RELEASED
    form: Form | str = Form.RELEASED
    balance_loss_weight: float = 0.01

    def __post_init__(self):
        super().__post_init__()
        self.check_selection()
