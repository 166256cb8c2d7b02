"""Device, dtypes, tolerances and inputs of the Triton kernel tests."""

import importlib.util
from pathlib import Path

import pytest
import torch

INTERPRETED = not Path("/dev/nvidiactl").exists()
"""Whether kernels run in Triton's interpreter, for lack of a GPU."""
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]
"""Without bfloat16 in the interpreter, which cannot multiply it."""
BOUND = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install triton"
)
TRITON = [needs_triton, pytest.mark.usefixtures("memory_full_of_nan", "kernels_in_interpreter")]
"""Marks of test files that run kernels."""


def features(*shape, dtype=torch.float32, seed=0, scale=1.0):
    """Return N(0, scale^2) values, equal on every device."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(DEVICE, dtype)


def assert_near(found, expected, dtype, name=""):
    """Assert that the difference's norm is below the bound of ``dtype`` times that of ``expected`` (float64)."""
    assert found.shape == expected.shape and found.isfinite().all(), name
    found, expected = found.detach().double(), expected.detach()
    error, size = float((found - expected).norm()), float(expected.norm())
    assert error <= BOUND[dtype] * size, f"{name}: off by {error / size:.1e}"


def differentiable(*inputs):
    """Return the inputs, and float64 copies of them, that all require a gradient."""
    return [x.requires_grad_() for x in inputs], [x.detach().double().requires_grad_() for x in inputs]


def assert_gradients_near(found, expected, inputs, leaves, dtype):
    """Assert equal outputs, and gradients along a random direction; return those of ``inputs``."""
    assert_near(found, expected, dtype, "out")
    up = features(*found.shape, dtype=found.dtype, seed=4)
    gradients_found = torch.autograd.grad(found, inputs, up)
    gradients_expected = torch.autograd.grad(expected, leaves, up.double())
    for i, (one, other) in enumerate(zip(gradients_found, gradients_expected, strict=True)):
        assert_near(one, other, dtype, f"gradient {i}")
    return gradients_found
