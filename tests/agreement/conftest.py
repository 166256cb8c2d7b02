"""Every test here begins with an empty stack of calls: torch.jit notes the whole stack for each operation."""

from concurrent.futures import ThreadPoolExecutor

import pytest

ALONE = ThreadPoolExecutor(1)
"""A thread whose stack has none of pytest's calls."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """The test in that thread."""
    test = pyfuncitem.obj
    pyfuncitem.obj = lambda **given: ALONE.submit(test, **given).result()
    return (yield)
