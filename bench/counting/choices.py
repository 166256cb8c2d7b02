"""The counters and devices that a command offers, and whether they are there. Imports torch only to ask for a GPU."""

from collections.abc import Sequence

from headcount.bench.counters import registry
from headcount.bench.errors import EnvironmentMissing

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""
DEVICES = ("cpu", "meta", "cuda")


def check_device(device: str | None, others: Sequence[str] = ("cpu", "meta")) -> None:
    """Raise EnvironmentMissing, naming the ``others``, where ``device`` is cuda and there is none."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EnvironmentMissing(f"no CUDA device on this machine; --device takes {' or '.join(others)} here")


def parse_counters(names: Sequence[str] | None) -> list[str]:
    """Return the counters for command-line words: none or ``all`` means every tool, ``closed-form`` no counting.

    Raises EnvironmentMissing, with how to install it, for one that is not installed.
    """
    if not names or "all" in names:
        return list(registry.NAMES)
    found = [name for name in registry.COUNTERS if name in names]
    for name in found:
        registry.check(name)
    return found
