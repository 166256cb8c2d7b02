"""Shapes of tensors by the names of their dimensions; equal names in one signature are equal sizes."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Float[Tensor, "batch seq d_model"]
"""Features of tokens, (B, T, d_m)."""
Queries = Float[Tensor, "batch tgt d_model"]
"""Features of query or target tokens, (B, T, d_m)."""
Sources = Float[Tensor, "batch src d_model"]
"""Features of key or source tokens, (B, S, d_m)."""
PaddingMask = Bool[Tensor, "batch seq"] | None
"""A mask (B, T) of tokens, True at padding."""
QueryMask = Bool[Tensor, "batch tgt"] | None
"""A mask (B, T) of query tokens, True at padding."""
KeyMask = Bool[Tensor, "batch src"] | None
"""A mask (B, S) of keys, True at padding."""
QueryHeads = Float[Tensor, "batch tgt heads head_dim"]
"""Queries of h heads, (B, T, h, d_h)."""
KeyHeads = Float[Tensor, "batch src kv_heads head_dim"]
"""Keys or values of g heads, (B, S, g, d_h)."""
SelectedHeads = Int[Tensor, "batch tgt k"]
"""The k heads that each token uses, (B, T, k)."""
