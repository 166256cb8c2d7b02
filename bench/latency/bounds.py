"""How far off an arm may be: twice as far as the plain reference in its own type is, and never farther than a cap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FACTOR = 2.0
"""How many times the plain reference's own error in the same type is allowed."""
FLOOR = {"float64": 1e-12, "float32": 1e-6, "float16": 3e-4, "bfloat16": 2e-3}
"""An error that is always allowed: the plain reference may happen to have hardly any."""
CAP = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-2}
"""The largest error of a layer's outputs and input gradients, relative, in the 2-norm."""
NOTHING = 1e-9
"""Of the largest result: a zero, in float64."""
MODEL_CAP, PARAMETER_CAP = 2.5, 5.0
"""Times the cap: of a whole model, and of one parameter's gradient, of which some are sums that nearly cancel."""


@dataclass(frozen=True)
class Checked:
    """The result with the largest share of its ``bound``: its ``error`` and what it is; what routers chose."""

    error: float
    bound: float
    what: str
    tokens: int = 0
    clear: int = 0
    other: int = 0
    backends: tuple[str, ...] = ()

    @property
    def wrong(self) -> str | None:
        """Why no time may be printed; None where it may."""
        if self.other:
            return f"wrong: other experts than the reference for {self.other} of {self.clear} clear choices"
        if not self.error <= self.bound:
            return f"wrong: relative error {self.error:.1e} of {self.what}, {self.bound:.1e} allowed"
        return None


def relative_error(found: Tensor, expected: Tensor, beside: float = 0.0) -> float:
    """The 2-norm of the difference over that of ``expected``; infinite beside zeros that should be none.

    What is next to nothing ``beside`` the norms of other results, as the gradient of a query that sees one key, is
    measured by those.
    """
    exact = expected.double()
    difference = float(torch.linalg.vector_norm(found.to(exact.device).double() - exact))
    size = float(torch.linalg.vector_norm(exact))
    if size <= NOTHING * beside:
        size = beside
    return difference / size if size else (0.0 if difference == 0 else math.inf)


def relative_errors(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[float]:
    """The errors of results that belong together."""
    beside = max(float(torch.linalg.vector_norm(one.double())) for one in expected)
    return [relative_error(*pair, beside) for pair in zip(found, expected, strict=True)]


def allowed(dtype: str, plain: float, times: float = 1.0) -> float:
    """The bound beside a ``plain`` reference that is so far off itself; ``times`` the cap. One that is no number allows
    next to nothing."""
    own = max(FLOOR[dtype], FACTOR * plain) if math.isfinite(plain) else FLOOR[dtype]
    return min(own, CAP[dtype] * times)
