"""Every counter on any module, each reading beside what its rules predict and why it is not the right count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.contractions.count import Formula, RightCount, right_count
from headcount.bench.counters import registry
from headcount.bench.counters.reading import CounterError
from headcount.bench.rules.explain import Explanation, explain
from headcount.bench.rules.tools import NAMES, RULES
from headcount.bench.trace.modes import tensors_of
from headcount.bench.trace.record import record


@dataclass(frozen=True)
class Explained:
    """One counter's reading in multiply-accumulates with its explanation, or the reason why there is none."""

    counter: str
    exact: int
    macs: int | None
    failed: str | None
    explanation: Explanation | None

    @property
    def difference(self) -> int | None:
        """Reading minus exact."""
        return None if self.macs is None else self.macs - self.exact

    @property
    def explained(self) -> bool:
        """Whether calls of the trace sum to the difference; a tool that failed needs no explanation."""
        if self.macs is None:
            return True
        return self.explanation is not None and self.explanation.explains(self.macs, self.exact)


LONGEST = 160
"""Characters of a tool's message that a table shows; JSON has it all."""


@dataclass(frozen=True)
class Readings:
    """The right count of a module and every counter's reading."""

    right: RightCount
    counters: tuple[Explained, ...]


def read(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    counters: Sequence[str] = registry.NAMES,
    label: str,
    exact: int | None = None,
    allow_uncounted: bool = False,
    formulas: Mapping[str, Formula] | None = None,
) -> Readings:
    """Record ``module`` once and run each counter on the same call.

    ``exact`` is what readings are compared with, the right count where it is None. Raises UncountedError, and
    whatever the module raises when it is recorded; a counter that fails has a reason instead of a reading.
    """
    kwargs = dict(kwargs or {})
    plain = record(module, args, kwargs, names=NAMES)
    right = right_count(plain, allow_uncounted=allow_uncounted, formulas=formulas)
    # Only torch's encoder layer asks whether modules have hooks, and ptflops and fvcore set some.
    asks = any(isinstance(part, nn.TransformerEncoderLayer) for part in module.modules())
    hooked = record(module, args, kwargs, names=NAMES, hooked=True) if asks else plain
    exact = right.macs if exact is None else exact
    seen = {
        "ptflops-pytorch": hooked,
        "fvcore": hooked,
        "ptflops-aten": plain,
        "torch": plain,
    }
    positional = Positional(module, args, kwargs)
    out = []
    for name in counters:
        macs, failed = _reading(name, positional, label)
        explanation = None
        if macs is not None:
            trace = seen[name]
            counted = right if trace is plain else right_count(trace, allow_uncounted=True, formulas=formulas)
            explanation = explain(RULES[name], trace, counted)
        out.append(Explained(name, exact, macs, failed, explanation))
    return Readings(right, tuple(out))


def as_record(cell: Explained) -> dict[str, Any]:
    """One counter's reading as JSON: raw integers, and its causes."""
    explanation = cell.explanation
    return {
        "counter": cell.counter,
        "macs": cell.macs,
        "difference": cell.difference,
        "failed": cell.failed,
        "explained": cell.explained,
        "predicted_macs": explanation and explanation.predicted_macs,
        "unverified": list(explanation.unverified) if explanation else [],
        "causes": [
            {"what": c.what, "name": c.name, "place": c.place, "calls": c.calls, "macs": c.amount}
            for c in (explanation.causes if explanation else ())
        ],
    }


def _reading(name: str, positional: "Positional", label: str) -> tuple[int | None, str | None]:
    try:
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(0)
            return registry.counter(name).count(positional, positional.tensors, label=label).macs, None
    except CounterError as error:
        return None, str(error).removeprefix(f"{name} did not count {label}: ")


class Positional(nn.Module):
    """A call of ``module`` as a module of tensors alone, by position: fvcore traces nothing else.

    ``tensors`` are the tensors among the call's arguments, by names that keep their order; the result is the
    tuple of all tensors that the module returns.
    """

    def __init__(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._call = (tuple(args), dict(kwargs))
        self.tensors = {f"tensor_{i}": tensor for i, tensor in enumerate(tensors_of(self._call))}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = _refilled(self._call, iter(tensors))
        return tuple(tensors_of(self.module(*args, **kwargs)))


def _refilled(value: Any, tensors) -> Any:
    """``value`` with its tensors replaced, in the order in which tensors_of finds them."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple | list):
        return type(value)(_refilled(part, tensors) for part in value)
    if isinstance(value, dict):
        return {key: _refilled(part, tensors) for key, part in value.items()}
    return value
