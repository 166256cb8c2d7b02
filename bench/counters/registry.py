"""The counters by name; an adapter, and with it torch and its tool, is imported when it is asked for."""

from functools import cache
from importlib import import_module
from types import ModuleType

COUNTERS = {
    "ptflops-pytorch": "headcount.bench.counters.ptflops_pytorch",
    "ptflops-aten": "headcount.bench.counters.ptflops_aten",
    "fvcore": "headcount.bench.counters.fvcore_jit",
    "torch": "headcount.bench.counters.torch_dispatch",
    "right": "headcount.bench.counters.right",
}
"""Module paths. Each module has NAME, DEFAULT_DEVICE, VERIFIED, count, bills, predict and additions."""

NAMES = tuple(name for name in COUNTERS if name != "right")
"""The tools, which are what is compared where nothing is asked for."""

CHOICES = (*NAMES, "right")
"""All counters: the tools, and our own count, which is right on every device and in every spelling."""


@cache
def counter(name: str) -> ModuleType:
    """The adapter called ``name``; ValueError with the valid names where there is none."""
    if name not in COUNTERS:
        raise ValueError(f"unknown counter {name!r}; one of {', '.join(CHOICES)}")
    return import_module(COUNTERS[name])
