"""The counters by name; an adapter, and with it torch and its tool, is imported when it is asked for."""

from importlib import import_module
from types import ModuleType

COUNTERS = {
    "ptflops-pytorch": "bench.counters.ptflops_pytorch",
    "ptflops-aten": "bench.counters.ptflops_aten",
    "fvcore": "bench.counters.fvcore_jit",
    "torch": "bench.counters.torch_dispatch",
}
"""Module paths. Each module has NAME, DEFAULT_DEVICE, VERIFIED, count, bills, predict and additions."""

NAMES = tuple(COUNTERS)


def counter(name: str) -> ModuleType:
    """The adapter called ``name``; ValueError with the valid names where there is none."""
    if name not in COUNTERS:
        raise ValueError(f"unknown counter {name!r}; one of {', '.join(NAMES)}")
    return import_module(COUNTERS[name])
