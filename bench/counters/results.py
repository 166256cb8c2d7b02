"""Run counters on one call of a module and explain the count that each reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.contractions.count import REPORT, ContractionCount, Formula, count_contractions
from headcount.bench.counters import base, registry
from headcount.bench.counters.base import Count, CounterError, CounterResult
from headcount.bench.counters.explain import Explanation, explain
from headcount.bench.trace.events import Trace
from headcount.bench.trace.modes import results_of, tensors_of
from headcount.bench.trace.record import fresh, record

LONGEST = 160
"""Maximum characters of a tool's message in a table; JSON has the whole message."""


@dataclass(frozen=True)
class ReportedCounts:
    """headcount's count of a module and every counter's result."""

    headcount: ContractionCount
    counters: tuple[Count, ...]


class Recorded:
    """A call of a module that is recorded on first use, and the explanation of each counter from its trace.

    Raises what the module raises when it is recorded, and UncountedError for unsupported operators.
    """

    def __init__(
        self,
        module: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tools: Sequence[ModuleType],
        *,
        allow_uncounted: bool = False,
        formulas: Mapping[str, Formula] | None = None,
        elementwise: str = REPORT,
    ) -> None:
        self._module, self._args, self._kwargs = module, args, kwargs
        self._names = base.names(tools)
        self._allow_uncounted = allow_uncounted
        self._options = {"formulas": formulas, "elementwise": elementwise}

    def _record(self, hooked: bool) -> Trace:
        return record(self._module, self._args, self._kwargs, names=self._names, hooked=hooked)

    @cached_property
    def _plain(self) -> Trace:
        return self._record(hooked=False)

    @cached_property
    def headcount(self) -> ContractionCount:
        """headcount's count: every contraction once."""
        return count_contractions(self._plain, allow_uncounted=self._allow_uncounted, **self._options)

    @cached_property
    def _hooked(self) -> tuple[Trace, ContractionCount]:
        """The trace and the count for tools that set hooks: they differ only for torch's encoder layer."""
        if not any(isinstance(part, nn.TransformerEncoderLayer) for part in self._module.modules()):
            return self._plain, self.headcount
        trace = self._record(hooked=True)
        return trace, count_contractions(trace, allow_uncounted=True, **self._options)

    def explain(self, tool: ModuleType) -> Explanation:
        """Return why the count of ``tool`` differs from headcount's."""
        return explain(tool, *(self._hooked if tool.HOOKS else (self._plain, self.headcount)))


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
    elementwise: str = REPORT,
) -> ReportedCounts:
    """Record ``module`` once and run each counter on the same call.

    Counters are compared with ``exact``, by default headcount's count. Raises UncountedError, and whatever the module
    raises when it is recorded; a counter that fails has a reason instead of a result.
    """
    kwargs = dict(kwargs or {})
    tools = [registry.counter(name) for name in counters]
    call = Recorded(
        fresh(module), args, kwargs, tools, allow_uncounted=allow_uncounted, formulas=formulas, elementwise=elementwise
    )
    exact = call.headcount.macs if exact is None else exact
    out = []
    for tool in tools:
        result, failed = _run(tool, Positional(fresh(module), args, kwargs), label)
        explanation = call.explain(tool) if result else None
        out.append(Count(tool.NAME, exact, result, failed, explanation=explanation))
    return ReportedCounts(call.headcount, tuple(out))


def as_record(cell: Count) -> dict[str, Any]:
    """Return one counter's result as JSON: raw integers and its causes."""
    return {
        "counter": cell.counter,
        "macs": cell.macs,
        "difference": cell.difference,
        "failed": cell.reason,
        "predicted_macs": cell.explanation and cell.explanation.predicted_macs,
        **explanation_record(cell),
    }


def explanation_record(cell: Count) -> dict[str, Any]:
    """Return the explanation of a counter's difference as JSON."""
    explanation = cell.explanation
    return {
        "explained": cell.explained,
        "unverified": list(explanation.unverified) if explanation else [],
        "causes": [
            {"what": c.what, "name": c.name, "place": c.place, "calls": c.calls, "macs": c.amount}
            for c in (explanation.causes if explanation else ())
        ],
    }


def _run(tool: ModuleType, positional: "Positional", label: str) -> tuple[CounterResult | None, str | None]:
    try:
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(0)
            return tool.read(positional, positional.tensors, label=label), None
    except CounterError as error:
        return None, str(error).removeprefix(f"{tool.NAME} did not count {label}: ")


class Positional(nn.Module):
    """A call of ``module`` as a module that takes only tensors by position: fvcore traces nothing else.

    ``tensors`` are the tensors among the call's arguments, by names in their order; the result is the
    tuple of all tensors that the module returns.
    """

    def __init__(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._call = (tuple(args), dict(kwargs))
        self.tensors = {f"tensor_{i}": tensor for i, tensor in enumerate(tensors_of(self._call))}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = _refilled(self._call, iter(tensors))
        return tuple(results_of(self.module(*args, **kwargs)))


def _refilled(value: Any, tensors) -> Any:
    """Return ``value`` with its tensors replaced, in the order of tensors_of."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple | list):
        return type(value)(_refilled(part, tensors) for part in value)
    if isinstance(value, dict):
        return {key: _refilled(part, tensors) for key, part in value.items()}
    return value
