"""Modules that are counted, each made once."""

from functools import cache

import pytest

from headcount.models.build import build


@pytest.fixture(scope="module")
def built():
    """``build`` with one module for equal configurations and devices: a counter leaves it as it was."""
    return cache(lambda config, device="meta": build(config, device=device))
