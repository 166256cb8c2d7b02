"""Tensors for ``--input``, in the process that runs user code."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headcount.bench.isolated.target import parse_input


def parse_inputs(texts: Sequence[str], dtype: str = "float32") -> dict[str, Tensor]:
    """Return tensors of ones by the name of forward's parameter; "0", "1" … by position where a text has no name.

    ``dtype`` is the type of inputs whose text names none. Raises UsageError for a text that parse_input refuses.
    """
    found = {}
    for text in texts:
        name, shape, own_dtype = parse_input(text)
        # ones: a token that every vocabulary has, and a mask that hides nothing
        key = name or str(sum(known.isdecimal() for known in found))
        found[key] = torch.ones(shape, dtype=getattr(torch, own_dtype or dtype))
    return found
