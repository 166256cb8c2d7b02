"""The counters by name; a counter's module, and with it torch and its tool, is imported on first use."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from headcount.bench.errors import EnvironmentMissing

COUNTERS = {
    "ptflops-pytorch": "ptflops_pytorch",
    "ptflops-aten": "ptflops_aten",
    "fvcore": "fvcore_jit",
    "torch": "torch_dispatch",
    "deepspeed": "deepspeed_profiler",
    "headcount": "headcount",
}
"""The module of each counter, the tools before headcount's own (its interface: bench.counters.base)."""
EXTRAS = ("deepspeed",)
"""The counters whose package is headcount's extra of the same name; the packages of the others are dependencies."""


def installed(name: str) -> bool:
    """Return whether the package of counter ``name`` is installed."""
    return name not in EXTRAS or find_spec(name) is not None


def tools() -> list[str]:
    """Return the installed tools, which ``audit`` and ``table`` compare by default."""
    return [name for name in COUNTERS if name != "headcount" and installed(name)]


def check(name: str) -> None:
    """Raise ValueError for an unknown counter and EnvironmentMissing for one that is not installed."""
    if name not in COUNTERS:
        raise ValueError(f"unknown counter {name!r}; one of {', '.join(COUNTERS)}")
    if not installed(name):
        raise EnvironmentMissing(f"{name} is missing: pip install {name}")


@cache
def counter(name: str) -> ModuleType:
    """Return the module of the counter called ``name``; raises what :func:`check` raises."""
    check(name)
    return import_module(f"headcount.bench.counters.{COUNTERS[name]}")
