"""The counters by name; a counter's file, and with it torch and its tool, is imported when it is asked for."""

from functools import cache
from importlib import import_module
from types import ModuleType

COUNTERS = {
    "ptflops-pytorch": "ptflops_pytorch",
    "ptflops-aten": "ptflops_aten",
    "fvcore": "fvcore_jit",
    "torch": "torch_dispatch",
    "right": "own",
}
"""The file of each (see bench.counters.base for what stands in one)."""

NAMES = tuple(name for name in COUNTERS if name != "right")
"""The tools, which are what is compared where nothing is asked for."""

CHOICES = (*NAMES, "right")
"""All counters: the tools, and our own count, which is right on every device and in every spelling."""


@cache
def counter(name: str) -> ModuleType:
    """The counter called ``name``; ValueError with the valid names where there is none."""
    if name not in COUNTERS:
        raise ValueError(f"unknown counter {name!r}; one of {', '.join(CHOICES)}")
    return import_module(f"headcount.bench.counters.{COUNTERS[name]}")
