"""Reference rotary positions, pair by pair in float64."""

import math

import torch

from headcount.models.rotary import Rotary


def table(start, length, width):
    """Return the rotary table in float64; the product computes it in float32."""
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(start, start + length, dtype=torch.float64)[:, None] * 1e4 ** (-pairs / width)
    return Rotary(torch.cos(angles), torch.sin(angles))


def turned(x, position):
    """Rotate the pairs (i, i + d/2) by position / 10000^(2i/d); return ``x`` unchanged for position None."""
    if position is None:
        return x
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * 1e4 ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out
