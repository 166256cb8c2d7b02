"""Keys and values of earlier tokens, for decoding one token after another."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.models.rotary import Rotary

HeadShape = tuple[int, int]
"""Heads, and the width of each: g and d_h."""


class KeyValueCache:
    """Room for ``max_len`` keys and values of these shapes per token; ``length`` of them are filled.

    Appending writes in place and never reallocates, so that the step can be captured in a CUDA graph. What is
    stored carries no gradient. A ``closed`` cache takes no more tokens: layers read it and project no keys.
    """

    def __init__(
        self,
        batch_size: int,
        max_len: int,
        key: HeadShape,
        value: HeadShape,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.key, self.value = (
            torch.zeros(batch_size, max_len, *shape, device=device, dtype=dtype) for shape in (key, value)
        )
        self.length = 0
        self.closed = False

    @classmethod
    def of(
        cls, key: Float[Tensor, "batch src kv_heads head_dim"], value: Float[Tensor, "batch src v_heads v_dim"]
    ) -> KeyValueCache:
        """A closed cache of exactly these keys and values, without a copy."""
        cache = cls(0, 0, tuple(key.shape[2:]), tuple(value.shape[2:]), device=key.device, dtype=key.dtype)
        cache.key, cache.value, cache.length, cache.closed = key.detach(), value.detach(), key.shape[1], True
        return cache

    @property
    def num_bytes(self) -> int:
        """Return the bytes of the filled part."""
        return sum(stored.numel() * stored.element_size() for stored in self.stored)

    @property
    def stored(
        self,
    ) -> tuple[Float[Tensor, "batch src kv_heads head_dim"], Float[Tensor, "batch src v_heads v_dim"]]:
        """All keys and values so far."""
        return self.key[:, : self.length], self.value[:, : self.length]

    def append(
        self, key: Float[Tensor, "batch new kv_heads head_dim"], value: Float[Tensor, "batch new v_heads v_dim"]
    ) -> tuple[Float[Tensor, "batch src kv_heads head_dim"], Float[Tensor, "batch src v_heads v_dim"]]:
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


class CachedLayer:
    """A layer whose keys and values can be stored for the queries of later steps.

    A subclass has ``stored_shapes``, the heads and their width of keys and of values, and ``project``, which makes both
    of tokens (B, S, d_m).
    """

    cache_type: type[KeyValueCache] = KeyValueCache

    def make_cache(
        self,
        batch_size: int,
        max_len: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> KeyValueCache:
        """Return an empty cache for ``max_len`` tokens (default: device and dtype of the weights)."""
        weight = next(self.parameters())
        device, dtype = weight.device if device is None else device, dtype or weight.dtype
        return self.cache_type(batch_size, max_len, *self.stored_shapes, device=device, dtype=dtype)

    def fill_cache(
        self, key: Float[Tensor, "batch src d_model"], value: Float[Tensor, "batch given d_model"] | None = None
    ) -> KeyValueCache:
        """Return a closed cache of the keys of ``key`` (B, S, d_m) and the values of ``value`` (default: ``key``), for
        queries that come one by one. ValueError where their lengths differ."""
        return self.cache_type.of(*self.project(key, values_beside(key, value)))

    def keys_and_values(
        self,
        query: Float[Tensor, "batch tgt d_model"],
        key: Float[Tensor, "batch src d_model"] | None,
        value: Float[Tensor, "batch given d_model"] | None,
        rotary: Rotary | None,
        cache: KeyValueCache | None,
    ) -> tuple[Float[Tensor, "batch stored kv_heads head_dim"], Float[Tensor, "batch stored v_heads v_dim"]]:
        """Return the keys of ``key`` (default: ``query``) and the values of ``value`` (default: the keys' tokens),
        after those in ``cache``.

        Raises ValueError for a ``key`` with a ``cache``, which takes the query's tokens, or was closed before; for a
        ``value`` with a closed one, or of another length than the keys; and for ``rotary`` with a ``key``, whose
        positions it does not have.
        """
        if key is not None and rotary is not None:
            raise ValueError("rotary positions are those of the queries: leave key out")
        if cache is not None and key is not None:
            raise ValueError("give key or cache, not both; layer.fill_cache(key) makes a cache of keys")
        if cache is not None and cache.closed:
            if value is not None:
                raise ValueError("a closed cache has its values; layer.fill_cache(key, value) makes one")
            return cache.stored
        key = query if key is None else key
        new = self.project(key, values_beside(key, value), rotary)
        return new if cache is None else cache.append(*new)


def values_beside(
    key: Float[Tensor, "batch src d_model"], value: Float[Tensor, "batch given d_model"] | None
) -> Float[Tensor, "batch src d_model"]:
    """Return the tokens that values are projected from: ``value``, by default ``key``. ValueError where their lengths
    differ, or are 0."""
    if not torch.jit.is_tracing() and key.shape[1] == 0:
        raise ValueError("key holds no tokens: a query without keys has no result of its own")
    if value is None:
        return key
    if value.shape[1] != key.shape[1]:
        raise ValueError(f"value must have as many tokens as the keys, {key.shape[1]}, not {value.shape[1]}")
    return value
