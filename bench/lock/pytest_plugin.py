"""The pytest fixture ``macs_lock``: the test fails, and names the changed entries, where a module's count changes.

    def test_attention_macs(macs_lock):
        macs_lock(MyAttention(512, 8), torch.zeros(1, 128, 512))

The lock is a file in a folder named after the test's file: ``test_model.py`` has
``test_model/test_attention_macs.lock``. ``pytest --macs-lock-update`` writes it; commit it. Installing headcount
installs the fixture.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headcount.bench.lock.api import Limits, Lock

OPTION = "--macs-lock-update"
_OWNERS = pytest.StashKey[dict[Path, str]]()
"""The test of each lock file of this run."""
_NOT_IN_NAMES = re.compile(r"[^\w.=,+\[\]-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites locks instead of checking them."""
    parser.getgroup("headcount").addoption(OPTION, action="store_true", help="rewrite the locks of macs_lock")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> None:
    """Leave headcount's lines out of the traceback of a failed test, but for its own tests and --full-trace."""
    package = sys.modules.get("headcount")
    if call.excinfo is None or package is None or package.CHECKOUT and item.path.is_relative_to(package.CHECKOUT):
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("headcount."):
            # pytest reads it in the globals of a frame too
            module.__dict__.setdefault("__tracebackhide__", True)


@pytest.fixture
def macs_lock(request: pytest.FixtureRequest) -> Callable[..., "Lock"]:
    """Return a function like ``hc.lock`` that also checks the count against the test's own lock.

    Its argument ``name`` separates several locks of one test. With ``max``, as ``{"macs": "+5%"}``, a count may be so
    much above the locked one, or up to a number, and anything below. It returns the Lock, and raises CostChanged where
    the count is not as locked, LockMissing where there is no lock, both AssertionErrors, and ValueError where two calls
    or two tests have the same file.
    """
    mine: set[Path] = set()

    def check(module: Any, *inputs: Any, name: str = "", max: "Limits | None" = None, **options: Any) -> "Lock":
        __tracebackhide__ = True
        from headcount.bench.lock.api import CostChanged, LockMissing, lock

        path = _lock_path(request.node, name)
        owner = request.config.stash.setdefault(_OWNERS, {}).setdefault(path, request.node.nodeid)
        if path in mine or owner != request.node.nodeid:
            raise ValueError(f"{path} is already the lock of {owner}; give each lock its own name=")
        mine.add(path)
        counted = lock(module, *inputs, **options)
        if request.config.getoption(OPTION):
            path.parent.mkdir(exist_ok=True)
            counted.write(path, max=max)
        elif path.exists():
            try:
                counted.check(path, max=max)
            except CostChanged as error:
                error.args = (f"{error}\n  pytest {OPTION} stores the new count",)
                raise
        else:
            raise LockMissing(f"there is no lock {path}; pytest {OPTION} writes it")
        return counted

    return check


def _lock_path(node: pytest.Item, name: str) -> Path:
    """Return the path of a test's lock: a folder named after the test's file, then class, test and ``name``."""
    test = ".".join([*node.nodeid.split("::")[1:], *([name] if name else [])])
    return node.path.with_suffix("") / f"{_NOT_IN_NAMES.sub('-', test)}.lock"
