"""Shapes in annotations, where the package that gives them meaning is not installed: a borrowed GPU has torch alone."""

import sys
from types import ModuleType
from typing import Any


class _Any:
    """Stands for every annotated array."""

    def __class_getitem__(cls, shape: Any) -> Any:
        return Any


def stand_in() -> None:
    """Let models be imported without jaxtyping; nothing where it is installed. Their annotations then say nothing."""
    try:
        import jaxtyping
    except ImportError:
        jaxtyping = ModuleType("jaxtyping")
        jaxtyping.Float = jaxtyping.Int = jaxtyping.Bool = _Any
        sys.modules["jaxtyping"] = jaxtyping
