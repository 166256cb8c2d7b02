"""Count a case: its closed form, what each tool reports of its module, and what the tool's rules predict.

Imports torch only to count.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from headcount.bench.case import Case
from headcount.bench.counters import base, registry
from headcount.bench.counters.base import CounterError, ToolCount, version_note
from headcount.bench.counting.choices import check_device
from headcount.bench.counting.result import Count, Parameter
from headcount.bench.trace.collector import importing
from headcount.formulas.ledger import Ledger

ELEMENT_BYTES = 2
"""Bytes of a weight: models are built in bfloat16."""
_COUNTS: dict[tuple, Count] = {}
"""The counts of this process by model, counters, device and whether with causes."""


def count_case(case: Case, counters: Sequence[str] = (), *, device: str | None = None, causes: bool = False) -> Count:
    """Return the closed form of ``case``, with what each of ``counters`` reports of its module.

    They run on ``device``, or by default where the counter was verified; without counters nothing runs. ``causes``
    records the calls too and derives an explanation of each count from them. Where a module is built the parameters are
    the module's. Counting needs no values: weights are zeros. Equal models are counted once in a process. A tool that
    fails on the model has a reason instead of a result. Raises EnvironmentMissing for a device that is not there.
    """
    if not counters:
        return Count(case.name, case.ledger)
    key = case.model, tuple(counters), device, causes
    if key not in _COUNTS:
        _COUNTS[key] = _count(case, counters, device, causes)
    return _COUNTS[key].with_values(name=case.name)


def _count(case: Case, counters: Sequence[str], device: str | None, causes: bool) -> Count:
    ledger, closed = case.ledger, Count(case.name, case.ledger)
    if not case.config.has_module:
        reason = "closed form only: no module to count, so the parameters are the closed form's too"
        return closed.with_values(tools=tuple(ToolCount(name, ledger.macs, None, reason) for name in counters))
    check_device(device)
    with importing():
        from headcount.bench.counters.run_context import one_thread

        places = {tool: counter_device(tool, ledger, device) for tool in map(registry.counter, counters)}
    found: dict[ModuleType, ToolCount] = {}
    with one_thread():
        # one device after the other: a model with values is freed before the next is built
        for where in dict.fromkeys(where for where, _ in places.values()):
            call = _Call(case, where, list(places))
            parameters = call.parameters()
            for tool, (at, note) in places.items():
                if at == where:
                    found[tool] = call.count(tool, causes, note)
    return closed.with_values(parameters=parameters, tools=tuple(found[tool] for tool in places))


class _Call:
    """The module of a case on a device, counted by ``tools``."""

    def __init__(self, case: Case, where: str, tools: Sequence[ModuleType]) -> None:
        self._case, self._where, self._tools = case, where, tools

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the module's parameters."""
        named = self._built[0].named_parameters()
        return tuple(Parameter(name, tuple(weight.shape), weight.requires_grad) for name, weight in named)

    def count(self, tool: ModuleType, causes: bool, why_there: str | None) -> ToolCount:
        """Return the count of ``tool``; ``causes`` derives the explanation from a trace, which all tools share."""
        from headcount.bench.counters.run_context import run_counter
        from headcount.bench.trace.shapes import skip_values

        (model, inputs), ledger, where = self._built, self._case.ledger, self._where
        try:
            with skip_values(where):
                result = run_counter(tool, model, inputs, label=self._case.name)
        except CounterError as error:
            return ToolCount(tool.NAME, ledger.macs, None, error.reason, device=where, why_there=why_there)
        return ToolCount(
            tool.NAME,
            ledger.macs,
            result,
            device=where,
            predicted_macs=base.predict(tool, ledger, where),
            additions={} if causes else base.additions(tool, ledger, where),
            explanation=self._recorded.explain(tool) if causes else None,
            why_there=why_there,
        )

    @cached_property
    def _built(self) -> tuple[Any, dict[str, Any]]:
        """The module, without values, and the inputs of its forward by name.

        bfloat16 halves the memory traffic; no counter looks at the type.
        """
        import torch

        from headcount.models.build import build, example_inputs

        options = {"device": self._where, "dtype": torch.bfloat16}
        model = build(self._case.config, initialise=False, **options)
        return model, example_inputs(self._case.config, self._case.lengths, **options)

    @cached_property
    def _recorded(self) -> Any:
        from headcount.bench.counting.tools import RecordedCall

        model, inputs = self._built
        return RecordedCall(model, tuple(inputs.values()), {}, self._tools)


def counter_device(tool: ModuleType, ledger: Ledger, device: str | None) -> tuple[str, str | None]:
    """Return where a counter counts a model, and why that is not its own device where the model is too large for it.

    ``device`` is where it counts every model, if any.
    """
    if device or tool.DEVICE == "meta":
        return device or tool.DEVICE, None
    why = base.too_large_for_cpu(ledger.macs, ELEMENT_BYTES * ledger.params)
    return "meta" if why else tool.DEVICE, why


def disagreements(count: Count, label: str) -> list[str]:
    """Return a line for each tool that failed or differs from its prediction, and for a wrong number of parameters."""
    failed = [tool for tool in count.tools if tool.has_failed]
    lines = [f"{label}: {tool.counter} on {tool.device} failed: {tool.reason}" for tool in failed]
    lines += [
        f"{label}: {tool.counter} on {tool.device} {tool.disagreement}"
        f"{version_note(registry.counter(tool.counter).VERIFIED)}"
        for tool in count.tools
        if tool.disagreement
    ]
    counted, closed = counted_params(count), count.ledger.params
    if counted not in (None, closed):
        lines.append(f"{label}: the module has {counted:,} parameters, the ledger {closed:,}")
    return lines


def exit_code(*counts: Count) -> int:
    """Return the exit code of a row of these counts: that of a tool's error where one failed."""
    return CounterError.exit_code if any(tool.has_failed for count in counts for tool in count.tools or ()) else 0


def rule_agreement(tools: Iterable[ToolCount]) -> list[str]:
    """Return how many tools differ from their rules, in words; nothing where nothing was counted."""
    read = [tool for tool in tools if tool.macs is not None]
    wrong = sum(tool.macs != tool.predicted_macs for tool in read)
    return [f"counts that differ from their counter's rules: {wrong} of {len(read)}"] if read else []


def counted_params(count: Count) -> int | None:
    """Return the parameters of the module of a case; None where none was built."""
    return count.params if any(tool.result for tool in count.tools) else None
