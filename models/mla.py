"""Multi-head latent attention (arXiv 2405.04434): keys and values of all heads from one latent per token."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Attention, Inputs, attend, split_heads
from headcount.models.cache import HeadShape
from headcount.models.configs.base import Form
from headcount.models.configs.mla import MultiHeadLatentAttentionConfig
from headcount.models.kernels.fused import fused_attend
from headcount.models.norms import RMSNorm
from headcount.models.rotary import Rotary, rotate
from headcount.models.shapes import Queries, QueryHeads, Sources


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend) -> Queries:
    """Compute the paper's equations: expand the latents of all stored tokens to keys and values, then attend.

    In the ideal form attend to the latents: q_i k_i^T = (q^C_i W^UK_i) c^T + q^R_i k^R^T, o_i = W^UV_i sum_j a_ij c_j.
    """
    config = layer.config
    plain, turned = layer.queries(inputs.query, inputs.rotary)
    if config.form is Form.IDEAL:
        q, key, value = layer.k_proj(plain), inputs.key, inputs.key[..., : config.kv_rank]
    else:
        latent, shared = inputs.key.split((config.kv_rank, config.rotary_dim), dim=-1)
        q, key = plain, split_heads(layer.k_proj(latent.flatten(2)), config.head_dim)
        value = split_heads(layer.v_proj(latent.flatten(2)), config.value_dim)
        # k_i = [k^C_i; k^R], with one rotary key for all heads
        key = torch.cat((key, shared.expand(-1, -1, config.num_heads, -1)), dim=-1)
    scale = (config.head_dim + config.rotary_dim) ** -0.5
    out = attend(torch.cat((q, turned), dim=-1), key, value, scale=scale, **inputs.core)
    return layer.out_proj((layer.v_proj(out) if config.form is Form.IDEAL else out).flatten(-2))


fused = partial(reference, attend=fused_attend)
"""``reference`` with F.scaled_dot_product_attention."""


class MultiHeadLatentAttention(Attention):
    """u = W^O [o_1; ...; o_h], o_i = Softmax([q^C_i; q^R_i] [k^C_i; k^R]^T / sqrt(d_h + d_r)) v_i (Eq. 9-19).

    The cache stores one head per token, the concatenation of the normalised c^KV and the rotated k^R, and no values.
    In the ideal form, which has the same parameters and results, W^UK is applied to queries, and W^UV to outputs.
    """

    def __init__(self, config: MultiHeadLatentAttentionConfig) -> None:
        super().__init__(config)
        ideal = config.form is Form.IDEAL
        key_proj, value_proj = (AbsorbedKeys, AbsorbedValues) if ideal else (nn.Linear, nn.Linear)
        d_model, num_heads, kv_rank = config.d_model, config.num_heads, config.kv_rank
        query_width = d_model if config.query_rank is None else config.query_rank
        if config.query_rank is not None:
            self.q_down_proj = nn.Linear(d_model, query_width, bias=config.bias)
            self.q_norm = RMSNorm(query_width, eps=1e-6)
        self.q_proj = nn.Linear(query_width, num_heads * config.head_dim, bias=False)
        self.q_rotary_proj = nn.Linear(query_width, num_heads * config.rotary_dim, bias=False)
        self.kv_down_proj = nn.Linear(d_model, kv_rank, bias=config.bias)
        self.kv_norm = RMSNorm(kv_rank, eps=1e-6)
        self.k_rotary_proj = nn.Linear(d_model, config.rotary_dim, bias=config.bias)
        self.k_proj = key_proj(kv_rank, num_heads * config.head_dim, bias=False)
        self.v_proj = value_proj(kv_rank, num_heads * config.value_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * config.value_dim, d_model, bias=config.bias)

    @property
    def stored_shapes(self) -> tuple[HeadShape, HeadShape]:
        """Return the latent and the rotary key as one head of width d_c + d_r; no values."""
        return (1, self.config.kv_rank + self.config.rotary_dim), (1, 0)

    def project(
        self, key: Sources, value: Sources, rotary: Rotary | None = None
    ) -> tuple[Float[Tensor, "batch src 1 stored"], Float[Tensor, "batch src 1 0"]]:
        """Return the normalised latent and the rotary key of tokens (B, S, d_m) as keys, and empty values."""
        latent = self.kv_norm(self.kv_down_proj(key))[:, :, None]
        shared = rotate(self.k_rotary_proj(key)[:, :, None], rotary)
        return torch.cat((latent, shared), dim=-1), latent[..., :0]

    def queries(
        self, x: Queries, rotary: Rotary | None
    ) -> tuple[QueryHeads, Float[Tensor, "batch tgt heads rotary_dim"]]:
        """Return q^C and q^R of tokens (B, T, d_m)."""
        latent = x if self.config.query_rank is None else self.q_norm(self.q_down_proj(x))
        turned = rotate(split_heads(self.q_rotary_proj(latent), self.config.rotary_dim), rotary)
        return split_heads(self.q_proj(latent), self.config.head_dim), turned


class AbsorbedKeys(nn.Linear):
    """W^UK on queries instead of latents; the parameters of the projection of keys."""

    def forward(self, query: QueryHeads) -> Float[Tensor, "batch tgt heads kv_rank"]:
        """Map each head's query by the transpose of that head's rows."""
        return by_head(query, self.weight.unflatten(0, query.shape[2:]))


class AbsorbedValues(nn.Linear):
    """W^UV on weighted latents instead of latents; the parameters of the projection of values."""

    def forward(self, latent: Float[Tensor, "batch tgt heads kv_rank"]) -> Float[Tensor, "batch tgt heads value_dim"]:
        """Map each head's weighted latents by that head's rows."""
        return by_head(latent, self.weight.unflatten(0, (latent.shape[2], -1)).transpose(1, 2))


def by_head(
    x: Float[Tensor, "batch tgt heads fan_in"], matrices: Float[Tensor, "heads fan_in fan_out"]
) -> Float[Tensor, "batch tgt heads fan_out"]:
    """Multiply head i of every token by matrix i; ``torch.bmm``, which every counter reads."""
    batch_size, tgt_len = x.shape[:2]
    out = torch.bmm(x.permute(2, 0, 1, 3).flatten(1, 2), matrices)
    return out.unflatten(1, (batch_size, tgt_len)).permute(1, 2, 0, 3)
