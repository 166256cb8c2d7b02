"""Count a model or layer with the counters, and compare each count with the prediction of the counter's rules.

Imports torch only to count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from headcount.bench import result_cache
from headcount.bench.case import Case
from headcount.bench.counters import base, registry
from headcount.bench.counters.base import Count
from headcount.bench.counters.call_counts import version_note
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.trace.collector import importing
from headcount.formulas.ledger import Ledger

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""

DEVICES = ("cpu", "meta", "cuda")

CPU_LIMIT_MACS = 10 * 10**9
CPU_LIMIT_PARAMS = 10**9
"""A model above either limit is counted on meta unless a device is given: on the CPU it would take minutes or too much
memory, and the rules of every counter hold on meta too."""


@dataclass(frozen=True)
class Measurement:
    """A case and its counts; ``counted_params`` is None where no module was built."""

    case: Case
    counted_params: int | None
    counts: tuple[Count, ...]

    @property
    def ledger(self) -> Ledger:
        """The exact ledger of the case."""
        return self.case.ledger

    @property
    def lengths(self) -> Mapping[str, int]:
        """The input lengths of the case."""
        return self.case.lengths

    @property
    def readings(self) -> dict[str, Any]:
        """The parameters and the reading of each counter, which :func:`measure` takes as ``readings``."""
        return {"params": self.counted_params, **{count.counter: count.result for count in self.counts}}

    def disagreements(self, label: str) -> list[str]:
        """Return one line for each count that differs from its prediction, and for wrong parameters."""
        lines = [
            f"{label}: {count.counter} on {count.device} {count.disagreement}"
            f"{version_note(registry.counter(count.counter).VERIFIED)}"
            for count in self.counts
            if not count.agrees
        ]
        if self.counted_params is not None and self.counted_params != self.ledger.params:
            lines.append(
                f"{label}: the module has {self.counted_params:,} parameters, the ledger {self.ledger.params:,}"
            )
        return lines


def measure(
    case: Case,
    counters: Sequence[str],
    *,
    device: str | None = None,
    causes: bool = False,
    readings: Mapping[str, Any] | None = None,
) -> Measurement:
    """Run ``case`` once under each of ``counters``, each on ``device`` or else where that counter is right.

    ``causes`` records the calls too, and what each counter makes of them. Counting needs no values: weights are
    zeros. A counter does not run again on a case that it has read in this process (bench.result_cache) or in another
    one (``readings``). Raises CounterError where a tool fails on the model, and EnvironmentMissing for a device that is
    not there.
    """
    ledger = case.ledger
    if not counters:
        return Measurement(case, None, ())
    if not case.config.has_module:
        reason = "closed form only: no module to count, so the parameters are the closed form's too"
        devices = {name: counter_device(registry.counter(name), ledger, device) for name in counters}
        counts = (Count(name, ledger.macs, None, reason, where) for name, where in devices.items())
        return Measurement(case, None, tuple(counts))
    check_device(device)

    with importing():
        from headcount.bench.counters.run_context import one_thread

        for name in counters:
            registry.counter(name)
    with one_thread():
        return _counted(case, counters, device, causes, readings or {})


def is_cached(case: Case, counters: Sequence[str], device: str | None) -> bool:
    """Return whether each of ``counters`` has counted the case in this process."""
    # a counter's file imports torch, which may wait until something is counted
    return not result_cache.is_empty() and all(
        result_cache.is_cached((case.model, counter_device(tool, case.ledger, device), tool.NAME))
        for tool in map(registry.counter, counters)
    )


def _counted(
    case: Case, counters: Sequence[str], device: str | None, causes: bool, readings: Mapping[str, Any]
) -> Measurement:
    ledger = case.ledger
    tools = {name: registry.counter(name) for name in counters}
    devices = {name: counter_device(tool, ledger, device) for name, tool in tools.items()}
    counts: dict[str, Count] = {}
    for where in dict.fromkeys(devices.values()):
        call = _Call(case, where, [tool for name, tool in tools.items() if devices[name] == where])
        params = call.once("params", lambda call=call: readings.get("params") or call.count_params())
        for tool in call.tools:
            stored = readings.get(tool.NAME)
            if not stored or stored.device != where:
                stored = None
            counts[tool.NAME] = Count(
                tool.NAME,
                ledger.macs,
                call.once(tool.NAME, lambda call=call, tool=tool, stored=stored: stored or call.read(tool)),
                device=where,
                predicted_macs=base.predict(tool, ledger, where),
                additions=base.additions(tool, ledger, where),
                explanation=call.explain(tool) if causes else None,
                why_there=device_note(tool, where) if not device else None,
            )
    return Measurement(case, params, tuple(counts[name] for name in counters))


class _Call:
    """A case on a device, counted by ``tools``; the module is built when a result is not in the cache."""

    def __init__(self, case: Case, where: str, tools: Sequence[ModuleType]) -> None:
        self._case, self._where, self.tools = case, where, tools

    def once(self, what: Any, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, called once in this process for equal configurations, lengths and devices."""
        return result_cache.from_memory((self._case.model, self._where, what), make)

    def count_params(self) -> int:
        """Return the module's parameters."""
        return sum(parameter.numel() for parameter in self._built[0].parameters())

    def read(self, tool: ModuleType) -> Any:
        """Return the reading of ``tool``."""
        from headcount.bench.trace.shapes import skip_values

        model, inputs = self._built
        with skip_values(self._where):
            return tool.read(model, inputs, label=self._case.name)

    def explain(self, tool: ModuleType) -> Any:
        """Return what ``tool`` makes of the recorded calls, which one trace for all tools holds."""
        return self.once((tool.NAME, "causes"), lambda: self._recorded.explain(tool))

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
        from headcount.bench.counters.results import RecordedCall
        from headcount.bench.counters.run_context import arguments

        model, inputs = self._built
        return RecordedCall(model, arguments(model, inputs), {}, self.tools)


def counter_device(tool: ModuleType, ledger: Ledger, device: str | None) -> str:
    """Return where a counter counts a model: ``device``, else its own device unless the model is too large."""
    if device:
        return device
    large = ledger.macs > CPU_LIMIT_MACS or ledger.params > CPU_LIMIT_PARAMS
    return "meta" if large else tool.DEVICE


def device_note(tool: ModuleType, where: str) -> str | None:
    """Return why a counter did not count on its own device; None where it did."""
    if where == tool.DEVICE:
        return None
    return (
        f"{tool.NAME} counted on {where}, not on {tool.DEVICE}: more than "
        f"{CPU_LIMIT_MACS // 10**9} GMACs or {CPU_LIMIT_PARAMS // 10**9} G parameters"
    )


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
    asked = [name for name in registry.CHOICES if name in names]
    for name in asked:
        registry.check(name)
    return asked


def as_records(preset: str | None, measured: Measurement, **facts: Any) -> list[dict[str, Any]]:
    """Return a measurement as JSON with raw integers: a record for the closed form and one for each counter.

    Each has ``preset``, ``counter``, ``device``, ``input``, ``macs``, ``params``, ``active_params``, ``ledger`` and
    ``facts``; a counter's also the causes of its difference where they are known.
    """
    common = {
        "input": dict(measured.lengths),
        "params": measured.ledger.params,
        "counted_params": measured.counted_params,
        "active_params": measured.ledger.active_params,
        **facts,
        "ledger": measured.ledger.as_records(),
    }
    closed = {"preset": preset, "counter": CLOSED_FORM, "device": None, "macs": measured.ledger.macs, **common}
    return [closed, *({"preset": preset, **_record(count), **common} for count in measured.counts)]


def _record(count: Count) -> dict[str, Any]:
    out = {
        "counter": count.counter,
        "device": count.device,
        "macs": count.macs,
        "predicted_macs": count.predicted_macs,
        "additions": dict(count.additions),
        "not_counted": count.reason,
        "counted_there_because": count.why_there,
        "tool": count.result and count.result.tool,
        "version": count.result and count.result.version,
        "unsupported": count.result and count.result.unsupported,
    }
    if count.explanation is None:
        return out
    return out | base.explanation_record(count)
