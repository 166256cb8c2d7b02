"""pytest's fixture ``macs_lock``: a test that fails, with the entries that changed, where a module's cost does.

    def test_what_my_attention_costs(macs_lock):
        macs_lock(MyAttention(512, 8), torch.zeros(1, 128, 512))

The lock stands beside the test's file: ``test_model.py`` has ``test_model/test_what_my_attention_costs.lock``. ``pytest
--macs-lock-update`` writes it; commit it. An installed headcount brings the fixture.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headcount.bench.lock.api import Lock

OPTION = "--macs-lock-update"
_OWNERS = pytest.StashKey[dict[Path, str]]()
"""Which test each lock of this run belongs to."""
_NOT_IN_NAMES = re.compile(r"[^\w.=,+\[\]-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that writes instead of comparing."""
    parser.getgroup("headcount").addoption(OPTION, action="store_true", help="write the locks of macs_lock anew")


@pytest.fixture
def macs_lock(request: pytest.FixtureRequest) -> Callable[..., "Lock"]:
    """A function like ``hc.lock``: count a module for its inputs, and compare with the test's own lock.

    ``name`` tells the locks of one test apart. It returns the Lock, raises CostChanged where the cost is another one
    or nobody has written it, and ValueError where two calls or two tests have one file.
    """
    mine: set[Path] = set()

    def check(module: Any, *inputs: Any, name: str = "", **options: Any) -> "Lock":
        from headcount.bench.lock.api import CostChanged, lock

        path = _place(request.node, name)
        owner = request.config.stash.setdefault(_OWNERS, {}).setdefault(path, request.node.nodeid)
        if path in mine or owner != request.node.nodeid:
            raise ValueError(f"{path} is the lock of {owner} already; name= tells locks apart")
        mine.add(path)
        counted = lock(module, *inputs, **options)
        if request.config.getoption(OPTION):
            path.parent.mkdir(exist_ok=True)
            counted.write(path)
        elif path.exists():
            counted.check(path)
        else:
            raise CostChanged(f"there is no lock {path}; pytest {OPTION} writes it")
        return counted

    return check


def _place(node: pytest.Item, name: str) -> Path:
    """Beside the test's file, in a folder called as that: by the test's own name, its class and ``name``."""
    test = ".".join([*node.nodeid.split("::")[1:], *([name] if name else [])])
    return node.path.with_suffix("") / f"{_NOT_IN_NAMES.sub('-', test)}.lock"
