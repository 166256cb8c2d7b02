"""The counters by name; a counter's file, and with it torch and its tool, is imported when it is asked for."""

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
    "deepspeed": "deepspeed_profiler:deepspeed",
    "right": "headcount",
}
"""The file of each (see bench.counters.base for what stands in one), and after a colon the package that it needs where
that is an extra of ours of the same name."""

CHOICES = tuple(name for name in COUNTERS if name != "right") + ("right",)
"""All counters: the tools, and our own count, which is right on every device and in every spelling."""


def installed(name: str) -> bool:
    """Whether the package of counter ``name`` is there; those without an extra are dependencies."""
    extra = COUNTERS[name].partition(":")[2]
    return not extra or find_spec(extra) is not None


NAMES = tuple(name for name in CHOICES if name != "right" and installed(name))
"""The tools that are installed, which are what is compared where nothing is asked for."""


def check(name: str) -> None:
    """ValueError with the valid names for a counter that there is not; EnvironmentMissing for one that is not
    installed."""
    if name not in COUNTERS:
        raise ValueError(f"unknown counter {name!r}; one of {', '.join(COUNTERS)}")
    if not installed(name):
        extra = COUNTERS[name].partition(":")[2]
        raise EnvironmentMissing(f"{name} is not installed; pip install 'headcount[{extra}]'")


@cache
def counter(name: str) -> ModuleType:
    """The counter called ``name``; raises what :func:`check` does."""
    check(name)
    return import_module(f"headcount.bench.counters.{COUNTERS[name].partition(':')[0]}")
