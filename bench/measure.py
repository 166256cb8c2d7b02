"""One model or layer under the counters: each reading beside what the ledger and that counter's rules predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headcount.bench.case import ledger_of
from headcount.bench.counters import registry
from headcount.bench.errors import EnvironmentMissing
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import AttentionConfig, ModelConfig

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""

DEVICES = ("cpu", "meta", "cuda")

CPU_LIMIT_MACS = 10 * 10**9
CPU_LIMIT_PARAMS = 10**9
"""A model above either is counted on meta unless a device is asked for: its values would take minutes or memory
that is not there, and every counter's reading on meta is known exactly too."""


@dataclass(frozen=True)
class Count:
    """One counter's reading in multiply-accumulates; ``macs`` None with the ``reason`` where there is none.

    ``why_there``: why it was not counted on the counter's own device.
    """

    counter: str
    device: str
    macs: int | None
    predicted_macs: int | None
    additions: Mapping[str, int]
    reason: str | None = None
    details: Any = None
    why_there: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether the reading is what the rules predict; a reading that was not taken disagrees with nothing."""
        return self.macs is None or self.macs == self.predicted_macs


@dataclass(frozen=True)
class Measurement:
    """A configuration's ledger and what was counted; ``counted_params`` None where no module was built."""

    config: AttentionConfig | ModelConfig
    lengths: Mapping[str, int]
    ledger: Ledger
    counted_params: int | None
    counts: tuple[Count, ...]

    def disagreements(self, label: str) -> list[str]:
        """One line for each number that is not what it must be."""
        lines = [
            f"{label}: {count.counter} on {count.device} reads {count.macs:,}, its rules predict "
            f"{count.predicted_macs:,}"
            for count in self.counts
            if not count.agrees
        ]
        if self.counted_params is not None and self.counted_params != self.ledger.params:
            lines.append(
                f"{label}: the module has {self.counted_params:,} parameters, the ledger {self.ledger.params:,}"
            )
        return lines


def measure(
    config: AttentionConfig | ModelConfig,
    lengths: Mapping[str, int],
    counters: Sequence[str],
    *,
    device: str | None = None,
    label: str,
    ledger: Ledger | None = None,
) -> Measurement:
    """Run ``config`` once under each of ``counters``, each on ``device`` or else where that counter is right.

    Counting needs no values: weights are zeros. ``ledger`` is the exact one, where the caller has it already.
    Raises CounterError where a tool fails on the model, and EnvironmentMissing for a device that is not there.
    """
    ledger = ledger_of(config, lengths) if ledger is None else ledger
    if not counters:
        return Measurement(config, lengths, ledger, None, ())
    if not config.has_module:
        counts = [
            Count(
                name,
                place(registry.counter(name), ledger, device),
                None,
                None,
                {},
                "closed form only: no module to count, so the parameters are the closed form's too",
            )
            for name in counters
        ]
        return Measurement(config, lengths, ledger, None, tuple(counts))
    check_device(device)

    from headcount.bench.counters.undisturbed import one_thread

    with one_thread():
        return _counted(config, lengths, ledger, counters, device, label)


def _counted(config, lengths, ledger, counters, device, label) -> Measurement:
    import torch

    from headcount.models.build import build, example_inputs

    adapters = {name: registry.counter(name) for name in counters}
    devices = {name: place(adapter, ledger, device) for name, adapter in adapters.items()}
    # Half the memory traffic of float32; no counter looks at the type.
    dtype = torch.bfloat16
    counts: dict[str, Count] = {}
    params = None
    for where in dict.fromkeys(devices.values()):
        model = build(config, device=where, dtype=dtype, initialise=False)
        inputs = example_inputs(config, lengths, device=where, dtype=dtype)
        params = sum(parameter.numel() for parameter in model.parameters())
        for name in (name for name in counters if devices[name] == where):
            reading = adapters[name].count(model, inputs, label=label)
            counts[name] = Count(
                name,
                where,
                reading.macs,
                adapters[name].predict(ledger, where),
                adapters[name].additions(ledger, where),
                details=reading,
                why_there=moved(adapters[name], where) if not device else None,
            )
        del model, inputs
    return Measurement(config, lengths, ledger, params, tuple(counts[name] for name in counters))


def place(adapter: ModuleType, ledger: Ledger, device: str | None) -> str:
    """Where a counter counts a model: on ``device``, else on its own device unless the model is too large for it."""
    if device:
        return device
    large = ledger.macs > CPU_LIMIT_MACS or ledger.params > CPU_LIMIT_PARAMS
    return "meta" if large else adapter.DEFAULT_DEVICE


def moved(adapter: ModuleType, where: str) -> str | None:
    """Why a counter did not count on its own device; None where it did."""
    if where == adapter.DEFAULT_DEVICE:
        return None
    return (
        f"{adapter.NAME} counted on {where}, not on {adapter.DEFAULT_DEVICE}: more than "
        f"{CPU_LIMIT_MACS // 10**9} GMACs or {CPU_LIMIT_PARAMS // 10**9} G parameters"
    )


def check_device(device: str | None) -> None:
    """EnvironmentMissing where ``device`` is cuda and there is none."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EnvironmentMissing("no CUDA device on this machine; --device takes cpu or meta here")


def parse_counters(names: Sequence[str] | None) -> list[str]:
    """Counters for command-line words: none or ``all`` for every tool, ``closed-form`` for no counting at all."""
    if not names or "all" in names:
        return list(registry.NAMES)
    return [name for name in registry.CHOICES if name in names]
