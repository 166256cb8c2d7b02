"""Import torchvision where its compiled operators do not fit the installed torch."""

import importlib
import re
from types import ModuleType

MISSING = re.compile(r"operator torchvision::(\w+) does not exist")


def import_models() -> ModuleType:
    """Return torchvision.models; ModuleNotFoundError where torchvision is not installed.

    Operators that its wheel does not provide for this torch are declared without kernels: models count without them.
    """
    import torch

    while True:
        try:
            return importlib.import_module("torchvision.models")
        except RuntimeError as error:
            missing = MISSING.search(str(error))
            if missing is None:
                raise
            torch.library.define(f"torchvision::{missing[1]}", "(Tensor boxes) -> Tensor")
