"""Run every test on an empty call stack: torch.jit records the whole stack for each operation."""

from concurrent.futures import ThreadPoolExecutor

import pytest

EMPTY_STACK = ThreadPoolExecutor(1)
"""A thread without calls of pytest."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run the test in that thread."""
    test = pyfuncitem.obj
    pyfuncitem.obj = lambda **given: EMPTY_STACK.submit(test, **given).result()
    return (yield)
