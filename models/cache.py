"""Keys and values of earlier tokens, for decoding one token after another."""

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValueCache:
    """Room for ``max_len`` keys and values of g heads of width d_h; ``length`` of them are filled.

    Appending writes in place and never reallocates, so that the step can be captured in a CUDA graph.
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

    @property
    def num_bytes(self) -> int:
        """Bytes that the filled part holds."""
        return 2 * self.key[:, : self.length].numel() * self.key.element_size()

    def append(
        self, key: Float[Tensor, "batch new kv_heads head_dim"], value: Float[Tensor, "batch new kv_heads head_dim"]
    ) -> tuple[Float[Tensor, "batch src kv_heads head_dim"], Float[Tensor, "batch src kv_heads head_dim"]]:
        """Store new tokens behind the stored ones; all keys and values so far. ValueError where room is short."""
        end = self.length + key.shape[1]
        if end > self.key.shape[1]:
            raise ValueError(f"the cache has room for {self.key.shape[1]} tokens, not {end}")
        self.key[:, self.length : end] = key
        self.value[:, self.length : end] = value
        self.length = end
        return self.key[:, :end], self.value[:, :end]
