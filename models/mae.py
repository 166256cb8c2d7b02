"""Mixture of attentive experts (arXiv 2005.06537): heads weighted by a gate on the mean token."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.models.attention import Attention, zero_padding
from headcount.models.cache import KeyValueCache
from headcount.models.configs.mae import Gate, MixtureOfAttentiveExpertsConfig
from headcount.models.shapes import KeyMask, PaddingMask, Queries, Sources, Tokens


class GateNetwork(nn.Module):
    """g = Softmax(W_2 tanh(W_1 x + b_1) + b_2): one weight per head; they sum to 1."""

    def __init__(self, d_model: int, width: int, num_heads: int, bias: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, width, bias=bias)
        self.fc2 = nn.Linear(width, num_heads, bias=bias)

    def forward(self, x: Float[Tensor, "batch rows d_model"]) -> Float[Tensor, "batch rows heads"]:
        """Map (B, 1 or T, d_m) to (B, 1 or T, h)."""
        return torch.softmax(self.fc2(torch.tanh(self.fc1(x))), dim=-1)


class RunningMeanCache(KeyValueCache):
    """Cache of keys and values, and of sum and number of the queries so far that are not padding."""

    total: Float[Tensor, "batch 1 d_model"] | None = None
    count: Float[Tensor, "batch 1 1"] | None = None


def running_mean(
    x: Float[Tensor, "batch new d_model"],
    padding_mask: Bool[Tensor, "batch new"] | None,
    cache: RunningMeanCache | None = None,
) -> Float[Tensor, "batch new d_model"]:
    """Return the mean of the tokens up to each of ``x`` (B, T, d_m), zeros before the first that is not padding.

    With ``cache`` they come after those in it, and are added there.
    """
    totals = zero_padding(x, padding_mask).cumsum(dim=1)
    counts = zero_padding(torch.ones_like(x[..., :1]), padding_mask).cumsum(dim=1)
    if cache is not None:
        if cache.total is not None:
            totals, counts = totals + cache.total, counts + cache.count
        cache.total, cache.count = totals[:, -1:].detach(), counts[:, -1:]
    return totals / counts.clamp(min=1)


class MixtureOfAttentiveExperts(Attention):
    """y = sum_i g_i f_i with f_i = h / (h - 1) sum_(j != i) H_j Wo_j: expert i uses every head but head i.

    This equals multi-head attention whose head j has the weight h (1 - g_j) / (h - 1). The gate g reads the mean of the
    tokens that ``config.gate`` names, without padding.
    """

    takes_head_weights = True

    def __init__(self, config: MixtureOfAttentiveExpertsConfig) -> None:
        super().__init__(config)
        self.add_projections()
        self.gate = GateNetwork(config.d_model, config.gate_width, config.num_heads, config.bias)

    @property
    def cache_type(self) -> type[KeyValueCache]:
        """Return RunningMeanCache if the gate reads a running mean, else KeyValueCache."""
        return RunningMeanCache if self.config.gate == Gate.RUNNING else KeyValueCache

    def forward(
        self,
        query: Queries,
        key: Sources | None = None,
        value: Float[Tensor, "batch given d_model"] | None = None,
        *,
        memory_mean: Float[Tensor, "batch 1 d_model"] | None = None,
        head_weights: Float[Tensor, "batch 1 heads"] | None = None,
        **options,
    ) -> Queries:
        """Attend as Attention does, with heads weighted by the gate.

        :meth:`memory_arguments` gives ``memory_mean`` (B, 1, d_m) or ``head_weights`` (B, 1, h).

        ValueError for ``gate=sequence`` in causal attention, and for ``gate=memory`` with neither them nor a ``key``.
        """
        if head_weights is None:
            head_weights = self.head_weights(self._mean(query, key, **options) if memory_mean is None else memory_mean)
        return super().forward(query, key, value, head_weights=head_weights, **options)

    def memory_arguments(self, memory: Sources, padding_mask: KeyMask, *, for_steps: bool = False) -> dict[str, Tensor]:
        """Return the mean of ``memory`` where the gate reads it, or with ``for_steps`` its head weights."""
        if self.config.gate != Gate.MEMORY:
            return {}
        mean = masked_mean(memory, padding_mask)
        return {"head_weights": self.head_weights(mean)} if for_steps else {"memory_mean": mean}

    def head_weights(self, mean: Float[Tensor, "batch #tgt d_model"]) -> Float[Tensor, "batch #tgt heads"]:
        """Return h (1 - g) / (h - 1): 1 for each head where the gate is uniform, 0 for a head whose gate is 1."""
        num_heads = self.config.num_heads
        return (1 - self.gate(mean)) * (num_heads / (num_heads - 1))

    def _mean(
        self, query, key, *, causal=False, cache=None, key_padding_mask=None, query_padding_mask=None, rotary=None
    ):
        if self.config.gate == Gate.RUNNING:
            return running_mean(query, query_padding_mask, cache)
        if self.config.gate == Gate.SEQUENCE:
            if causal or cache is not None:
                raise ValueError(self.config.no_step)
            return masked_mean(query, query_padding_mask)
        if key is None:
            raise ValueError("gate=memory without a key needs what layer.memory_arguments gives")
        return masked_mean(key, key_padding_mask)


def masked_mean(x: Tokens, padding_mask: PaddingMask) -> Float[Tensor, "batch 1 d_model"]:
    """Return the mean of each sequence's tokens without padding; zeros where there are none."""
    if padding_mask is None:
        return x.mean(dim=1, keepdim=True)
    count = (~padding_mask).sum(dim=1).clamp(min=1)
    return zero_padding(x, padding_mask).sum(dim=1, keepdim=True) / count[:, None, None]
