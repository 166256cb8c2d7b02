"""The cases that many tests share: a small layer of every attention variant and implementation."""

from dataclasses import MISSING, fields
from itertools import product

import pytest
import torch

from headcount.models.build import build, example_inputs
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.kernels.selection import missing

SIZES = {
    "d_model": 5 * 7, "num_heads": 5, "head_dim": 2 * 7, "num_experts": 3, "top_k": 2, "num_shared_heads": 1,
    "side": 2 * 3, "pool_ratio": 3, "position_width": 11,
}  # fmt: skip
"""Sizes by field: primes, or products of primes where one size must divide another. Other required fields are 4."""
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 11}
CPU = torch.device("cpu")


def configurations(*varied, **sizes):
    """Yield the id and the configuration of every variant with a module that has the fields ``sizes``.

    Each combination of choices of the fields ``varied`` (such as "form") gives a configuration.
    """
    for name, kind in ATTENTIONS.items():
        if kind.module is None or not sizes.keys() <= {f.name for f in fields(kind)}:
            continue
        choices = {f.name: list(type(f.default)) for f in fields(kind) if f.name in varied}
        required = {f.name: 4 for f in fields(kind) if f.default is MISSING}
        own = required | {f.name: (SIZES | sizes)[f.name] for f in fields(kind) if f.name in SIZES | sizes}
        for chosen in product(*choices.values()):
            yield "-".join((name, *chosen)), kind(**own | dict(zip(choices, chosen, strict=True)))


def cases(*varied, **sizes):
    """Return (configuration, implementation) of every layer that runs on this machine's CPU, as pytest parameters."""
    return [
        pytest.param(config, impl, id=f"{name}-{impl.name}")
        for name, config in configurations(*varied, **sizes)
        for impl in config.implementations
        if not missing(impl, CPU)
    ]


def takes_keys(config):
    """Return whether the layer takes queries and keys."""
    return "key" in config.inputs(LENGTHS)


def made(config, impl, lengths=None):
    """Return a layer that runs ``impl``, in the highest precision that it supports, and its inputs by name."""
    dtype = precision(impl)
    inputs = example_inputs(config, LENGTHS | (lengths or {}), dtype=dtype)
    return randomise(build(config, dtype=dtype, impl=impl.name)), inputs


def randomise(module, scale=0.2):
    """Add N(0, scale^2) to every trained parameter, so that no bias is 0, and return the module."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in (p for p in module.parameters() if p.requires_grad):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(scale * noise.to(parameter.dtype))
    return module


def features(*shape, seed=5):
    """Return seeded N(0, 1) values in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padding(real, total):
    """Return a mask (B, total), True after the first ``real`` tokens of each sequence."""
    return torch.arange(total) >= torch.tensor(real)[:, None]


def precision(impl):
    """Return float64, or float32 for kernels of another package, which multiply no float64 matrices."""
    return torch.float64 if impl.package is None else torch.float32


def assert_close(found, expected):
    """Assert equality up to rounding in the dtype of ``found``."""
    tolerance = 1e-10 if found.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)


LAYERS = cases("form", "router", "gates")
"""A small layer of every variant, form, router, kind of gates and implementation."""
