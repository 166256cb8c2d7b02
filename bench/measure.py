"""One model or layer under the counters: each reading beside what the ledger and that counter's rules predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.counters import registry
from bench.errors import EnvironmentMissing
from bench.ledgers import ledger_of
from formulas.ledger import Ledger
from models.config import AttentionConfig, ModelConfig

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""

DEVICES = ("cpu", "meta", "cuda")


@dataclass(frozen=True)
class Count:
    """One counter's reading in multiply-accumulates; ``macs`` None with the ``reason`` where there is none."""

    counter: str
    device: str
    macs: int | None
    predicted_macs: int | None
    additions: Mapping[str, int]
    reason: str | None = None
    details: Any = None

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
) -> Measurement:
    """Run ``config`` once under each of ``counters``, each on ``device`` or else where that counter is right.

    Counting needs no values: weights are zeros. Raises CounterError where a tool fails on the model, and
    EnvironmentMissing for a device that is not there.
    """
    ledger = ledger_of(config, lengths)
    if not counters:
        return Measurement(config, lengths, ledger, None, ())
    if not config.has_module:
        counts = [
            Count(
                name,
                device or registry.counter(name).DEFAULT_DEVICE,
                None,
                None,
                {},
                "closed form only: no module to count, so the parameters are the closed form's too",
            )
            for name in counters
        ]
        return Measurement(config, lengths, ledger, None, tuple(counts))
    check_device(device)

    from bench.counters.undisturbed import one_thread

    with one_thread():
        return _counted(config, lengths, ledger, counters, device, label)


def _counted(config, lengths, ledger, counters, device, label) -> Measurement:
    import torch

    from models.build import build, example_inputs

    adapters = {name: registry.counter(name) for name in counters}
    devices = {name: device or adapter.DEFAULT_DEVICE for name, adapter in adapters.items()}
    # Half the memory traffic of float32; no counter looks at the type.
    dtype = torch.bfloat16
    counts: dict[str, Count] = {}
    params = None
    for place in dict.fromkeys(devices.values()):
        model = build(config, device=place, dtype=dtype, initialise=False)
        inputs = example_inputs(config, lengths, device=place, dtype=dtype)
        params = sum(parameter.numel() for parameter in model.parameters())
        for name in (name for name in counters if devices[name] == place):
            reading = adapters[name].count(model, inputs, label=label)
            counts[name] = Count(
                name,
                place,
                reading.macs,
                adapters[name].predict(ledger, place),
                adapters[name].additions(ledger, place),
                details=reading,
            )
        del model, inputs
    return Measurement(config, lengths, ledger, params, tuple(counts[name] for name in counters))


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
