"""A fixture of the Triton kernel tests."""

import pytest
import torch


@pytest.fixture
def memory_full_of_nan():
    """Fill new memory with NaN or the highest integer, so that unwritten elements are noticed."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
