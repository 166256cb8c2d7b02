"""What went wrong with an arm, as the status of its row, and whether the device is still there afterwards."""

import torch

OUT_OF_MEMORY = "out of memory"
LONGEST = 200
"""Characters of a status at most: the first line of some errors is a page."""


class ArmFailed(Exception):
    """An arm could not be timed; ``arm`` is the one that was running, ``status`` what its row says."""

    def __init__(self, arm: object, status: str) -> None:
        super().__init__(status)
        self.arm, self.status = arm, status


class DeviceLost(Exception):
    """The device answers no more in this process; ``label`` is the arm that was running, ``status`` what it did."""

    def __init__(self, label: str, status: str) -> None:
        super().__init__(f"{label}: {status}")
        self.label, self.status = label, status


def status_of(error: BaseException) -> str:
    """``out of memory``, or ``failed: TYPE: first line``."""
    said = str(error).strip()
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in said:
        return OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and "out of memory" in said:
        return OUT_OF_MEMORY
    return f"failed: {type(error).__name__}: {said.splitlines()[0] if said else 'no message'}"[:LONGEST]


def lost(device: str) -> bool:
    """Whether the device answers no more: after some errors every later call of the process fails too."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
