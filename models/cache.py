"""State of earlier tokens, for decoding one token after another: keys and values, or inputs of a convolution."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.models.shapes import KeyHeads, Sources

HeadShape = tuple[int, int]
"""Heads, and the width of each: g and d_h."""


class KeyValueCache:
    """Storage for ``max_len`` keys and values of these shapes per token; ``length`` of them are filled.

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
    def of(cls, key: KeyHeads, value: Float[Tensor, "batch src v_heads v_dim"]) -> KeyValueCache:
        """Return a closed cache of exactly these keys and values, without a copy."""
        cache = cls(0, 0, tuple(key.shape[2:]), tuple(value.shape[2:]), device=key.device, dtype=key.dtype)
        cache.key, cache.value, cache.length, cache.closed = key.detach(), value.detach(), key.shape[1], True
        return cache

    @property
    def stored(self) -> tuple[KeyHeads, Float[Tensor, "batch src v_heads v_dim"]]:
        """Return all keys and values so far."""
        return self.key[:, : self.length], self.value[:, : self.length]

    def append(
        self, key: Float[Tensor, "batch new kv_heads head_dim"], value: Float[Tensor, "batch new v_heads v_dim"]
    ) -> tuple[KeyHeads, Float[Tensor, "batch src v_heads v_dim"]]:
        """Store new tokens after the stored ones and return all keys and values so far.

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


class WindowCache:
    """The last w - 1 inputs of a causal convolution, zeros before the first; ``length`` tokens were appended."""

    def __init__(self, batch_size: int, kernel_size: int, d_model: int, like: Tensor) -> None:
        self.values: Float[Tensor, "batch taps d_model"] = like.new_zeros(batch_size, kernel_size - 1, d_model)
        self.length = 0

    def append(self, new: Float[Tensor, "batch new d_model"]) -> Float[Tensor, "batch seen d_model"]:
        """Return the w - 1 earlier tokens and the new ones; store the last w - 1 of these."""
        seen = torch.cat((self.values, new.detach()), dim=1)
        self.values.copy_(seen[:, new.shape[1] :])
        self.length += new.shape[1]
        return seen


def value_tokens(key: Sources, value: Float[Tensor, "batch given d_model"] | None) -> Sources:
    """Return the tokens that values are projected from: ``value``, by default ``key``. ValueError where their lengths
    differ, or are 0."""
    if not torch.jit.is_tracing() and key.shape[1] == 0:
        raise ValueError("key holds no tokens: a query without keys has no result")
    if value is None:
        return key
    if value.shape[1] != key.shape[1]:
        raise ValueError(f"value must have as many tokens as the keys, {key.shape[1]}, not {value.shape[1]}")
    return value
