"""Format the error of an implementation as the status of its row, and test whether the device still works."""

import torch

OUT_OF_MEMORY = "out of memory"
LONGEST = 200
"""Characters of a status at most."""


class ImplFailed(Exception):
    """The implementation ``impl`` could not be timed; ``status`` is that of its row."""

    def __init__(self, impl: object, status: str) -> None:
        super().__init__(status)
        self.impl, self.status = impl, status


class DeviceLost(Exception):
    """The device no longer works in this process; ``label`` is the implementation that ran, ``status`` its error."""

    def __init__(self, label: str, status: str) -> None:
        super().__init__(f"{label}: {status}")
        self.label, self.status = label, status


def format_status(error: BaseException) -> str:
    """Return ``out of memory``, or ``failed: TYPE: first line``."""
    message = str(error).strip()
    if isinstance(error, MemoryError) or "out of memory" in message or "can't allocate memory" in message:
        return OUT_OF_MEMORY
    return f"failed: {type(error).__name__}: {message.splitlines()[0] if message else 'no message'}"[:LONGEST]


def is_lost(device: str) -> bool:
    """Return whether the device no longer works: after some errors every later call of the process fails."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
