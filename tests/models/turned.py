"""Rotary positions, pair by pair and in float64."""

import math

import torch

from headcount.models.rotary import Rotary


def table(start, length, width):
    """Angles in float64: the library makes its own in float32."""
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(start, start + length, dtype=torch.float64)[:, None] * 1e4 ** (-pairs / width)
    return Rotary(torch.cos(angles), torch.sin(angles))


def turned(x, position):
    """Pairs (i, i + d/2) by the angle position / 10000^(2i/d); as they are for None."""
    if position is None:
        return x
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * 1e4 ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out
