"""Mixture feed-forward block: K of E experts for each token (arXiv 1701.06538), in place of a dense block."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.activations import Activation, relu, silu
from headcount.models.attention import drop
from headcount.models.configs.moa import Gates
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.experts import ExpertLinear
from headcount.models.kernels.selection import REFERENCE, Selectable
from headcount.models.losses import balance_and_z_loss
from headcount.models.router import Routing, TopKRouter
from headcount.models.shapes import PaddingMask, Tokens


def reference(layer: nn.Module, x: Tokens, routing: Routing) -> Tokens:
    """Compute the equation as written: every row by its selected expert."""
    slots = x[:, :, None].expand(-1, -1, layer.config.top_k, -1)
    hidden = layer.hidden(*(project(slots, routing.indices) for project in layer.inward))
    return (layer.outward(hidden, routing.indices) * routing.weights[..., None]).sum(dim=2)


class MixtureFeedForward(Selectable):
    """y_t = sum_{i in G(x_t)} w_i,t f_i(x_t), with w the softmax over the logits of the K selected experts.

    f_i(x) = activation(x W1_i + b1_i) W2_i + b2_i, or gated (activation(x Wgate_i) * x Wup_i) Wdown_i without biases.
    ``activation`` (default: SiLU where gated, else ReLU).
    """

    inherits_impl = True
    routing_loss = balance_and_z_loss

    def __init__(
        self,
        config: MixtureFeedForwardConfig,
        activation: Activation | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(config)
        d_model, d_ff, num_experts = config.d_model, config.d_ff, config.num_experts
        self.activation = activation or (silu if config.gated else relu)
        self.dropout = dropout
        self.router = TopKRouter(d_model, num_experts, config.top_k, Gates.SELECTED)
        if config.gated:
            self.gate_proj = ExpertLinear(num_experts, d_model, d_ff)
            self.up_proj = ExpertLinear(num_experts, d_model, d_ff)
            self.down_proj = ExpertLinear(num_experts, d_ff, d_model)
        else:
            self.fc1 = ExpertLinear(num_experts, d_model, d_ff, bias=True)
            self.fc2 = ExpertLinear(num_experts, d_ff, d_model, bias=True)
        self.output_bias = nn.Parameter(torch.zeros(d_model)) if config.output_bias else None

    @property
    def inward(self) -> tuple[ExpertLinear, ...]:
        """Return the projections to the inner width."""
        return (self.gate_proj, self.up_proj) if self.config.gated else (self.fc1,)

    @property
    def outward(self) -> ExpertLinear:
        """Return the projection back."""
        return self.down_proj if self.config.gated else self.fc2

    def hidden(
        self, first: Float[Tensor, "*rows d_ff"], second: Float[Tensor, "*rows d_ff"] | None = None
    ) -> Float[Tensor, "*rows d_ff"]:
        """Return activation(first), times ``second`` where gated, with dropout."""
        out = self.activation(first)
        return drop(out if second is None else out * second, self.dropout, self.training)

    def forward(self, x: Tokens, padding_mask: PaddingMask = None) -> Tokens:
        """Map each token of (B, T, d_m) independently; ``padding_mask`` is only recorded, for losses and statistics."""
        run = self.resolve_impl(x)
        y = run(self, x, self.router(x, padding_mask))
        return y if self.output_bias is None else y + self.output_bias

    def automatic(self, query: Tokens) -> str:
        """Return ``grouped``, but ``reference`` for fewer rows than experts on CUDA, and on meta without bfloat16."""
        few = query.is_cuda and query.shape[0] * query.shape[1] * self.config.top_k < self.config.num_experts
        return REFERENCE if few or query.is_meta and query.dtype != torch.bfloat16 else "grouped"
