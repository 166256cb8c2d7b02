"""A small layer of every registered attention, by every arm that runs here."""

from dataclasses import MISSING, fields
from itertools import product

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.kernels.selection import missing

SIZES = {
    "d_model": 12, "num_heads": 4, "head_dim": 6, "num_experts": 3, "top_k": 2, "num_shared_heads": 1, "side": 4,
    "pool_ratio": 2, "position_width": 5,
}  # fmt: skip
"""By field; a variant takes those that it has, and 4 for what else it must be told."""
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 11}
DTYPES = (torch.float64, torch.float32)
CPU = torch.device("cpu")


def configurations(*varied, **sizes):
    """Id and configuration of every variant with a module that has the fields ``sizes``, with each choice of each of
    its ``varied`` fields."""
    for name, kind in ATTENTIONS.items():
        if kind.module is None or not sizes.keys() <= {f.name for f in fields(kind)}:
            continue
        choices = {f.name: list(type(f.default)) for f in fields(kind) if f.name in varied}
        must = {f.name: 4 for f in fields(kind) if f.default is MISSING}
        own = must | {f.name: (SIZES | sizes)[f.name] for f in fields(kind) if f.name in SIZES | sizes}
        for chosen in product(*choices.values()):
            yield "-".join((name, *chosen)), kind(**own | dict(zip(choices, chosen, strict=True)))


def cases(*varied, **sizes):
    """Configuration and arm of every layer that can run on this machine's CPU, as pytest's parameters."""
    return [
        pytest.param(config, arm, id=f"{name}-{arm.name}")
        for name, config in configurations(*varied, **sizes)
        for arm in config.implementations
        if not missing(arm, CPU)
    ]


def takes_keys(config):
    """Whether the inputs of its layer are queries and keys, asked without a layer."""
    return "key" in config.inputs(LENGTHS)


def made(config, arm, lengths=None):
    """A layer that runs ``arm``, in the highest precision that it takes, and its inputs by name."""
    lengths = LENGTHS | (lengths or {})
    dtype = precision(arm)
    return build(config, dtype=dtype, impl=arm.name), example_inputs(config, lengths, dtype=dtype)


def precision(arm):
    """float64, but where kernels of a package multiply no matrices of it."""
    return DTYPES[arm.package is not None]


def assert_close(found, expected):
    """Equal but for rounding, in the precision of ``found``."""
    digits = 1e-10 if found.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=digits, atol=digits)
