"""Multi-head attention, and its grouped-query and multi-query forms."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from headcount.models.attention import Attention, Inputs, attend, project_together, split_heads
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.kernels.fused import fused_attend
from headcount.models.rotary import rotate
from headcount.models.shapes import Queries


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend) -> Queries:
    """Compute the paper's equations for a layer with a dense query projection; ``layer.combine`` sums the heads."""
    query = layer.q_proj(inputs.query) if inputs.packed is None else inputs.packed
    q = rotate(split_heads(query, layer.config.head_dim), inputs.rotary)
    out = attend(q, inputs.key, inputs.value, **inputs.core)
    if inputs.head_weights is not None:
        out = out * inputs.head_weights[..., None]
    return layer.combine(out, inputs.query)


fused = partial(reference, attend=fused_attend)
"""``reference`` with F.scaled_dot_product_attention."""


class MultiHeadAttention(Attention):
    """y = sum_i Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)) V Wv_i Wo_i (arXiv 1706.03762; 2210.05144, Eq. 4-5).

    With g < h key/value heads each serves h / g query heads (arXiv 2305.13245).
    """

    def __init__(self, config: MultiHeadAttentionConfig) -> None:
        super().__init__(config)
        self.add_projections()

    def project_packed(self, tokens: Queries) -> Sequence[Tensor] | None:
        """Return queries, keys and values by one product where ``packed`` runs."""
        if self.impl_used != "packed":
            return None
        return project_together(tokens, self.q_proj, self.k_proj, self.v_proj)
