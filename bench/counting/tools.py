"""Count one call of a module on one device: record it once, run the tools, and apply their rules to the record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from headcount.bench.counters import registry
from headcount.bench.counters.base import CounterError, CounterResult, Explanation, ToolCount, additions, predict
from headcount.bench.counters.explain import explain
from headcount.bench.counters.run_context import run_counter, seed_generators
from headcount.bench.counting.result import Count
from headcount.bench.counting.run import count_contractions, inputs_of
from headcount.bench.trace.copies import Copier
from headcount.bench.trace.events import Trace
from headcount.bench.trace.modes import results_of
from headcount.bench.trace.record import record
from headcount.bench.trace.shapes import skip_values
from headcount.formulas.ledger import Ledger

ModuleCall = tuple[nn.Module, tuple, dict[str, Any]]
"""A module, its positional inputs and its keyword inputs."""
LONGEST = 160
"""Maximum characters of a tool's message in a table; JSON has the whole message."""


@dataclass
class RecordedCall:
    """A call of a module on one device, which is recorded on first use, and what each counter reports of it.

    Attributes:
        module, args, kwargs: the call.
        tools: the counters that will run; recorded are the Python names whose calls they count.
        label: what errors name.
        options: those of count_contractions.
        backward, input_gradients: record the gradients too, and those of inputs.
        training: the module runs in training mode, not in eval mode.
        is_own: a model of this package, whose inputs are keywords: it needs no copy, and values are of no matter.

    Raises what the module raises when it is recorded, and UnsupportedError for unsupported operators.
    """

    module: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    tools: Sequence[ModuleType] = ()
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = False
    input_gradients: bool = True
    training: bool = False
    is_own: bool = False

    def _record(self, hooked: bool) -> Trace:
        names = dict.fromkeys(name for tool in self.tools for name in getattr(tool, "NAMES", ()))
        options = {"names": tuple(names), "backward": self.backward, "hooked": hooked}
        options |= {"input_gradients": self.input_gradients, "training": self.training}
        # each run of a module that draws numbers is the same
        seed_generators()
        return record(self.module, self.args, self.kwargs, **options)

    @cached_property
    def headcount(self) -> Count:
        """headcount's count: every contraction once."""
        inputs = inputs_of(tuple(self.args), self.kwargs)
        return count_contractions(self._record(hooked=False), inputs=inputs, **self.options)

    @cached_property
    def _hooked(self) -> Count:
        """The count for tools that set hooks: it differs only for torch's encoder layer."""
        if not any(isinstance(part, nn.TransformerEncoderLayer) for part in self.module.modules()):
            return self.headcount
        return count_contractions(self._record(hooked=True), **{**self.options, "allow_unsupported": True})

    def explain(self, tool: ModuleType) -> Explanation:
        """Return why the count of ``tool`` differs from headcount's."""
        run = (self._hooked if getattr(tool, "HOOKS", False) else self.headcount).run
        return explain(tool, run.trace, run.by_event)

    def run(self, tool: ModuleType) -> CounterResult:
        """Return what ``tool`` reports. Raises CounterError."""
        if self.is_own:
            device = next(iter(self.kwargs.values())).device.type
            with skip_values(device):
                return run_counter(tool, self.module, self.kwargs, label=self.label)
        with torch.no_grad(), Copier() as copier:
            positional = Positional(copier.model(self.module), self.args, self.kwargs)
        seed_generators()
        return run_counter(tool, positional, positional.tensors, label=self.label)

    def count(self, tool: ModuleType, exact: int, ledger: Ledger | None = None, is_recorded: bool = True) -> ToolCount:
        """Return the count of ``tool`` beside ``exact``; one that fails has a reason instead of a result.

        Its rules predict it from ``ledger``, the closed form, and from the recorded calls where it ``is_recorded``.
        """
        try:
            result = self.run(tool)
        except CounterError as error:
            return ToolCount(tool.NAME, exact, None, error.reason)
        return ToolCount(
            tool.NAME,
            exact,
            result,
            predicted_macs=None if ledger is None else predict(tool, ledger, result.device),
            additions={} if ledger is None or is_recorded else additions(tool, ledger, result.device),
            explanation=self.explain(tool) if is_recorded else None,
        )


def read(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    counters: Sequence[str] | None = None,
    label: str,
    exact: int | None = None,
    backward: bool = False,
    **options: Any,
) -> Count:
    """Record ``module`` once and run each of ``counters`` on the same call, with the random numbers of seed 0.

    For commands: the process' generators are seeded.

    Counters are compared with ``exact``, by default headcount's count; ``options`` are those of count_contractions.
    Raises UnsupportedError, and what the module raises when it is recorded; a counter that fails has a reason instead
    of a result.
    """
    tools = [registry.counter(name) for name in (registry.tools() if counters is None else counters)]
    call = RecordedCall(module, args, dict(kwargs or {}), tools, label, options, backward)
    exact = call.headcount.macs if exact is None else exact
    return call.headcount.with_values(tools=tuple(call.count(tool, exact) for tool in tools))


class Positional(nn.Module):
    """A call of ``module`` as a module that takes only tensors by position: fvcore traces nothing else.

    ``tensors`` are the tensors among the call's arguments, by names in their order; the result is the
    tuple of all tensors that the module returns.
    """

    def __init__(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._call = (tuple(args), dict(kwargs))
        tensors = [leaf for leaf in tree_leaves(self._call) if isinstance(leaf, Tensor)]
        self.tensors = {f"tensor_{i}": tensor for i, tensor in enumerate(tensors)}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        args, kwargs = tree_map_only(Tensor, lambda _: next(given), self._call)
        return tuple(results_of(self.module(*args, **kwargs)))
