"""A plugin of pytest: the rooms and their tests are imported anew in each of many runs in one process.

Mutants are tried in forks of a process that has run the tests. What a module makes while it is imported, as tables of
functions, is to be made of the mutant, and nothing that an earlier run computed is to be left.
"""

import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
    """Forget what is imported of them."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("headcount", "tests") and name not in ("tests", __name__):
            del sys.modules[name]
