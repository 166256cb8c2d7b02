"""Run every test in a thread with an empty call stack: torch.jit records the stack of each operation."""

from concurrent.futures import ThreadPoolExecutor

import pytest

EMPTY_STACK = ThreadPoolExecutor(1)
"""A thread without pytest's calls on its stack."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run the test in the thread of EMPTY_STACK."""
    test = pyfuncitem.obj
    pyfuncitem.obj = lambda **given: EMPTY_STACK.submit(test, **given).result()
    return (yield)
