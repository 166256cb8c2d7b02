"""Count a model or layer with the counters, and compare each count with the prediction of the counter's rules.

Imports torch only to count.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from headcount.bench.case import Case
from headcount.bench.counters import base, registry
from headcount.bench.counters.base import ToolCount, version_note
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.result_cache import RESULTS
from headcount.bench.trace.collector import importing
from headcount.formulas.ledger import Ledger

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""

DEVICES = ("cpu", "meta", "cuda")

ELEMENT_BYTES = 2
"""Bytes of a weight: models are built in bfloat16."""


@dataclass(frozen=True)
class Measurement:
    """A case and its counts; ``counted_params`` is None where no module was built."""

    case: Case
    counted_params: int | None
    counts: tuple[ToolCount, ...]

    @property
    def ledger(self) -> Ledger:
        """The exact ledger of the case."""
        return self.case.ledger

    def to_json(self) -> dict[str, Any]:
        """Return the exact count, its ledger, and what each counter reported, as raw integers."""
        return {
            "input": dict(self.case.lengths),
            "macs": self.ledger.macs,
            "params": self.ledger.params,
            "counted_params": self.counted_params,
            "active_params": self.ledger.active_params,
            "counts": list(map(base.as_record, self.counts)),
            "ledger": self.ledger.as_records(),
        }

    def disagreements(self, label: str) -> list[str]:
        """Return one line for each count that differs from its prediction, and for wrong parameters."""
        lines = [
            f"{label}: {count.counter} on {count.device} {count.disagreement}"
            f"{version_note(registry.counter(count.counter).VERIFIED)}"
            for count in self.counts
            if count.disagreement
        ]
        if self.counted_params is not None and self.counted_params != self.ledger.params:
            lines.append(
                f"{label}: the module has {self.counted_params:,} parameters, the ledger {self.ledger.params:,}"
            )
        return lines


def measure(case: Case, counters: Sequence[str], *, device: str | None = None, causes: bool = False) -> Measurement:
    """Run ``case`` once under each of ``counters``, on ``device`` or by default where the counter was verified.

    ``causes`` records the calls too and derives an explanation of each count from them. Counting needs no values:
    weights are zeros. A counter does not run again on a case whose result bench.result_cache has. Raises CounterError
    where a tool fails on the model, and EnvironmentMissing for a device that is not there.
    """
    ledger = case.ledger
    if not counters:
        return Measurement(case, None, ())
    if not case.config.has_module:
        reason = "closed form only: no module to count, so the parameters are the closed form's too"
        return Measurement(case, None, tuple(ToolCount(name, ledger.macs, None, reason) for name in counters))
    check_device(device)

    with importing():
        from headcount.bench.counters.run_context import one_thread

        places = {tool: counter_device(tool, ledger, device) for tool in map(registry.counter, counters)}
    params, counts = None, {}
    with one_thread():
        # one device after the other: a model with values is freed before the next is built
        for where in dict.fromkeys(where for where, _ in places.values()):
            call = _Call(case, where, list(places))
            params = params or call.count_params()
            for tool, (at, note) in places.items():
                if at == where:
                    counts[tool] = call.count(tool, causes, note)
    return Measurement(case, params, tuple(counts[tool] for tool in places))


class _Call:
    """A case on a device, counted by ``tools``; the module is built when a result is not in the cache."""

    def __init__(self, case: Case, where: str, tools: Sequence[ModuleType]) -> None:
        self._case, self._where, self.tools = case, where, tools

    def _once(self, what: Any, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, called once in this process for equal configurations, lengths and devices."""
        key = self._case.model, self._where, what
        if key not in RESULTS:
            RESULTS[key] = make()
        return RESULTS[key]

    def count_params(self) -> int:
        """Return the module's parameters."""
        return self._once("params", lambda: sum(weight.numel() for weight in self._built[0].parameters()))

    def count(self, tool: ModuleType, causes: bool, note: str | None) -> ToolCount:
        """Return the count of ``tool``; ``causes`` derives the explanation from a trace, which all tools share."""
        ledger, where = self._case.ledger, self._where
        return ToolCount(
            tool.NAME,
            ledger.macs,
            self._once(tool.NAME, lambda: self._read(tool)),
            device=where,
            predicted_macs=base.predict(tool, ledger, where),
            additions=base.additions(tool, ledger, where),
            explanation=self._once((tool.NAME, "causes"), lambda: self._recorded.explain(tool)) if causes else None,
            why_there=note,
        )

    def _read(self, tool: ModuleType) -> base.CounterResult:
        from headcount.bench.counters.run_context import run_counter
        from headcount.bench.trace.shapes import skip_values

        model, inputs = self._built
        with skip_values(self._where):
            return run_counter(tool, model, inputs, label=self._case.name)

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
        return RecordedCall(model, tuple(inputs.values()), {}, self.tools)


def counter_device(tool: ModuleType, ledger: Ledger, device: str | None) -> tuple[str, str | None]:
    """Return where a counter counts a model, and why that is not its own device where the model is too large for it.

    ``device`` is where it counts every model, if any.
    """
    if device or tool.DEVICE == "meta":
        return device or tool.DEVICE, None
    why = base.too_large_for_cpu(ledger.macs, ELEMENT_BYTES * ledger.params)
    return "meta" if why else tool.DEVICE, why


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
    found = [name for name in registry.COUNTERS if name in names]
    for name in found:
        registry.check(name)
    return found


def rule_agreement(counts: Iterable[ToolCount]) -> list[str]:
    """Return how many counts differ from their counter's rules, in words; nothing where nothing was counted."""
    read = [count for count in counts if count.macs is not None]
    wrong = sum(count.macs != count.predicted_macs for count in read)
    return [f"counts that differ from their counter's rules: {wrong} of {len(read)}"] if read else []


def as_records(preset: str | None, measured: Measurement, **facts: Any) -> list[dict[str, Any]]:
    """Return a measurement as JSON with raw integers: a record for the closed form and one for each counter.

    Each has ``preset``, ``counter``, ``device``, ``input``, ``macs``, ``params``, ``active_params``, ``ledger`` and
    ``facts``; a counter's also what base.as_record returns.
    """
    common = {
        "input": dict(measured.case.lengths),
        "params": measured.ledger.params,
        "counted_params": measured.counted_params,
        "active_params": measured.ledger.active_params,
        **facts,
        "ledger": measured.ledger.as_records(),
    }
    closed = {"preset": preset, "counter": CLOSED_FORM, "device": None, "macs": measured.ledger.macs, **common}
    return [closed, *({"preset": preset, **base.as_record(count), **common} for count in measured.counts)]
