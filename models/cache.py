"""Keys and values of earlier tokens, for decoding one token after another."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.models.attention import own_projection


class KeyValueCache:
    """Room for ``max_len`` keys and values of g heads of width d_h; ``length`` of them are filled.

    Appending writes in place and never reallocates, so that the step can be captured in a CUDA graph. What is
    stored carries no gradient. A ``closed`` cache takes no more tokens: layers read it and project no keys.
    """

    def __init__(
        self,
        batch_size: int,
        max_len: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (batch_size, max_len, num_kv_heads, head_dim)
        self.key = torch.zeros(shape, device=device, dtype=dtype)
        self.value = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0
        self.closed = False

    @classmethod
    def of(
        cls, key: Float[Tensor, "batch src kv_heads head_dim"], value: Float[Tensor, "batch src kv_heads head_dim"]
    ) -> KeyValueCache:
        """A closed cache of exactly these keys and values, without a copy."""
        cache = cls(0, 0, *key.shape[2:], device=key.device, dtype=key.dtype)
        cache.key, cache.value, cache.length, cache.closed = key.detach(), value.detach(), key.shape[1], True
        return cache

    @property
    def num_bytes(self) -> int:
        """Bytes that the filled part holds."""
        return 2 * self.key[:, : self.length].numel() * self.key.element_size()

    @property
    def stored(
        self,
    ) -> tuple[Float[Tensor, "batch src kv_heads head_dim"], Float[Tensor, "batch src kv_heads head_dim"]]:
        """All keys and values so far."""
        return self.key[:, : self.length], self.value[:, : self.length]

    def append(
        self, key: Float[Tensor, "batch new kv_heads head_dim"], value: Float[Tensor, "batch new kv_heads head_dim"]
    ) -> tuple[Float[Tensor, "batch src kv_heads head_dim"], Float[Tensor, "batch src kv_heads head_dim"]]:
        """Store new tokens behind the stored ones; all keys and values so far.

        Raises ValueError where room is short, or the cache is closed.
        """
        end = self.length + key.shape[1]
        if self.closed:
            raise ValueError("the cache is closed and takes no more tokens")
        if end > self.key.shape[1]:
            raise ValueError(f"the cache has room for {self.key.shape[1]} tokens, not {end}")
        self.key[:, self.length : end] = key.detach()
        self.value[:, self.length : end] = value.detach()
        self.length = end
        return self.stored


class Cached:
    """A layer whose ``k_proj`` and ``v_proj`` make keys and values that later steps read again."""

    def make_cache(
        self,
        batch_size: int,
        max_len: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> KeyValueCache:
        """An empty cache for ``max_len`` tokens, by default where and in what the weights are."""
        weight, head_dim = self.k_proj.weight, self.config.head_dim
        device, dtype = weight.device if device is None else device, dtype or weight.dtype
        return KeyValueCache(batch_size, max_len, len(weight) // head_dim, head_dim, device=device, dtype=dtype)

    def fill_cache(self, key: Float[Tensor, "batch src d_model"]) -> KeyValueCache:
        """A closed cache of the keys and values of ``key`` (B, S, d_m), for queries that come one by one."""
        return KeyValueCache.of(*own_projection(self)(key))


def keys_and_values(
    project: Callable[[Tensor], tuple[Tensor, Tensor]],
    query: Float[Tensor, "batch tgt d_model"],
    key: Float[Tensor, "batch src d_model"] | None,
    cache: KeyValueCache | None,
) -> tuple[Float[Tensor, "batch stored kv_heads head_dim"], Float[Tensor, "batch stored kv_heads head_dim"]]:
    """What a layer attends to: ``project`` of ``key``, or of ``query`` without it, behind what ``cache`` holds.

    Raises ValueError for a ``key`` beside a ``cache``: it takes the query's tokens, or was closed before.
    """
    if cache is None:
        return project(query if key is None else key)
    if key is not None:
        raise ValueError("give key or cache, not both; layer.fill_cache(key) makes a cache of keys")
    return cache.stored if cache.closed else cache.append(*project(query))
