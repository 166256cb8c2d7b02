"""Mixture-of-head attention (arXiv 2410.11842) as released: every head computed, then multiplied by its gate."""

from collections.abc import Callable
from functools import partial

from torch import nn

from headcount.models.attention import Attention, Inputs, attend, split_heads
from headcount.models.configs.moh import Gates, MixtureOfHeadAttentionConfig
from headcount.models.head_router import HeadRouter
from headcount.models.kernels.fused import fused_attend
from headcount.models.losses import RoutingLoss, head_balance_loss
from headcount.models.rotary import rotate
from headcount.models.router import Recorded
from headcount.models.shapes import Queries


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend, every: bool = True) -> Queries:
    """Compute every head and multiply it by its gate: 0 where a token has not selected it (the released code).

    ``every``: whether quantised gates of heads that are not selected have a gradient too (Eq. 10).
    """
    q = split_heads(layer.q_proj(inputs.query), layer.config.head_dim)
    selected, gates = layer.router(inputs.query, inputs.query_padding_mask, q, every=every)
    out = attend(rotate(q, inputs.rotary), inputs.key, inputs.value, **inputs.core)
    all_gates = layer.router.weigh_all(selected, gates)
    return layer.out_proj((out * all_gates[..., None]).flatten(-2))


fused = partial(reference, attend=fused_attend)


class MixtureOfHeadAttention(Attention):
    """MoH(X, X') = sum_i g_i H^i W_O^i, H^i = Softmax(X W_Q^i (X' W_K^i)^T / sqrt(d_h)) X' W_V^i (Eq. 3-4).

    Released, it computes every H^i and multiplies it by its gate, 0 where the head is not selected: the authors'
    code. models/moh_ideal.py has the same parameters and results without the heads that a token does not select;
    keys and values are computed for all heads in both. ``ragged`` skips unselected heads on real hardware. Where gates
    are quantised, the gradient of Eq. 10 reaches every routed head here, selected or not; neither ``ragged`` nor the
    ideal form has the outputs of unselected heads that it needs, and passes it to selected ones alone.
    """

    def __init__(
        self,
        config: MixtureOfHeadAttentionConfig,
        query_proj: type[nn.Linear] = nn.Linear,
        out_proj: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__(config)
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.router = HeadRouter(config)
        self.q_proj = query_proj(config.d_model, width, bias=config.bias)
        self.k_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.v_proj = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.out_proj = out_proj(width, config.d_model, bias=config.bias)

    def routing_loss(self, recorded: Recorded) -> RoutingLoss:
        """Return beta L_b (Eq. 7) with beta = balance_loss_weight; E beta L_b, averaged, as the released code."""
        (_, indices, _, probs), padding_mask = recorded
        loss = self.config.balance_loss_weight * head_balance_loss(probs, indices, padding_mask)
        released = self.config.gates is Gates.RELEASED
        return RoutingLoss(self.router.num_experts * loss if released else loss, averaged=released)
