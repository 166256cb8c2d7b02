"""Every test here begins with an empty stack of calls: torch.jit notes the whole stack for each operation."""

from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """The test in a thread of its own, whose stack has none of pytest's calls."""
    test = pyfuncitem.obj

    def alone(**given):
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(test, **given).result()

    pyfuncitem.obj = alone
    return (yield)
