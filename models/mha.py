"""Multi-head attention, and its grouped-query and multi-query forms."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Attention, KeyHeads, QueryMask, Tokens, attend, split_heads
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.kernels.fused import fused_attend
from headcount.models.rotary import Rotary, rotate


def reference(
    layer: nn.Module,
    query: Tokens,
    key: KeyHeads,
    value: KeyHeads,
    *,
    query_padding_mask: QueryMask,
    rotary: Rotary | None = None,
    head_weights: Float[Tensor, "batch #tgt heads"] | None = None,
    attend: Callable = attend,
    **core,
) -> Tokens:
    """Compute the equations as written, of any layer with a dense query projection: heads, then ``layer.combine``.

    ``head_weights``: factors of the heads' outputs.
    """
    q = rotate(split_heads(layer.q_proj(query), layer.config.head_dim), rotary)
    out = attend(q, key, value, **core)
    return layer.combine(out if head_weights is None else out * head_weights[..., None], query)


fused = partial(reference, attend=fused_attend)


class MultiHeadAttention(Attention):
    """y = sum_i Softmax(Q Wq_i (K Wk_i)^T / sqrt(d_h)) V Wv_i Wo_i (arXiv 1706.03762; 2210.05144, Eq. 4-5).

    With g < h key/value heads each serves h / g query heads (arXiv 2305.13245).
    """

    def __init__(self, config: MultiHeadAttentionConfig) -> None:
        super().__init__(config)
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.d_model, width, bias=config.bias)
        self.k_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.v_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.out_proj = nn.Linear(width, config.d_model, bias=config.bias)
