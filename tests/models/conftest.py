"""Fixtures of the Triton kernel tests."""

import pytest
import torch

from tests.models.triton_cases import INTERPRETED


@pytest.fixture
def memory_full_of_nan():
    """Fill new memory with NaN or the highest integer, so that unwritten elements are noticed."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def kernels_in_interpreter(monkeypatch):
    """Run kernels in Triton's interpreter where there is no GPU."""
    if INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
