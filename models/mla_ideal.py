"""Multi-head latent attention with its up-projections absorbed: the ideal form of models/mla.py, for decoding."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.attention import Inputs, attend
from headcount.models.configs.mla import MultiHeadLatentAttentionConfig
from headcount.models.kernels.fused import fused_attend
from headcount.models.mla import MultiHeadLatentAttention
from headcount.models.shapes import Queries, QueryHeads


def reference(layer: nn.Module, inputs: Inputs, attend: Callable = attend) -> Queries:
    """Compute q_i k_i^T = (q^C_i W^UK_i) c^T + q^R_i k^R^T, o_i = W^UV_i sum_j a_ij c_j."""
    config = layer.config
    plain, turned = layer.queries(inputs.query, inputs.rotary)
    q = torch.cat((layer.k_proj(plain), turned), dim=-1)
    scale = (config.head_dim + config.rotary_dim) ** -0.5
    out = attend(q, inputs.key, inputs.key[..., : config.kv_rank], scale=scale, **inputs.core)
    return layer.out_proj(layer.v_proj(out).flatten(-2))


fused = partial(reference, attend=fused_attend)


class IdealMultiHeadLatentAttention(MultiHeadLatentAttention):
    """MultiHeadLatentAttention with the same parameters: W^UK is applied to queries, and W^UV to outputs."""

    def __init__(self, config: MultiHeadLatentAttentionConfig) -> None:
        super().__init__(config, AbsorbedKeys, AbsorbedValues)


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
