"""What can be compared: a preset with some of its fields changed, written ``NAME,FIELD=VALUE,FIELD=VALUE``.

Importable without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from headcount.bench.case import layers_of, ledger_of, resolve_lengths, with_attention
from headcount.bench.measure import measure
from headcount.formulas.ledger import Ledger, Size
from headcount.models.configs.base import AttentionConfig, ConfigError, ModelConfig
from headcount.models.configs.presets import PRESETS, parse_overrides, preset
from headcount.models.configs.registry import ATTENTIONS, MODELS


@dataclass(frozen=True)
class Subject:
    """A configuration under the name that the user gave it; ``preset`` is the name that it is a change of."""

    name: str
    preset: str
    config: AttentionConfig | ModelConfig
    lengths: Mapping[str, int]

    @property
    def ledger(self) -> Ledger:
        """The exact ledger at the subject's lengths."""
        return ledger_of(self.config, self.lengths)

    def ledger_in(self, letter: str, size: Size) -> Ledger:
        """The ledger with ``letter`` replaced in every layer; T stands for every input length."""
        return ledger_of(self.config, self.lengths, dict.fromkeys(self._moved(letter), size))

    def at(self, letter: str, size: int) -> "Subject":
        """The subject with ``letter`` set to an integer, ready to be built. ConfigError where it cannot be."""
        if letter == "T":
            if "T" in self.config.fields_by_letter:
                tokens = self.config.fields_by_letter["T"]
                raise ConfigError(f"a {self.config.variant} model has no input length; its T is its {tokens}")
            lengths = {name: self.lengths[name] if name == "batch_size" else size for name in self.lengths}
            ledger_of(self.config, lengths)
            return Subject(self.name, self.preset, self.config, lengths)
        fields = self.config.attention.fields_by_letter
        changed = with_attention(self.config, **{fields[moved]: size for moved in self._moved(letter)})
        return Subject(self.name, self.preset, changed, self.lengths)

    def _moved(self, letter: str) -> tuple[str, ...]:
        """``letter`` and those that are the same number by definition: S, and g where every head has its own."""
        if letter == "T":
            return ("T", "S")
        own = [layer.letters() for layer in layers_of(self.config)]
        return ("h", "g") if letter == "h" and all(sizes["g"] == sizes["h"] for sizes in own) else (letter,)

    def counted(self, counters: Sequence[str], device: str | None) -> dict[str, int | str]:
        """Each counter's reading less what it adds by name, or why there is none."""
        taken = measure(self.config, self.lengths, counters, device=device, label=self.name).counts
        return {
            count.counter: count.reason if count.macs is None else count.macs - sum(count.additions.values())
            for count in taken
        }

    def letters(self) -> tuple[str, ...]:
        """The letters whose turning points are sought: T, and those of the routing that are alike in all layers."""
        return ("T", *(letter for letter in self.config.attention.routing_letters if letter not in self.uneven()))

    def uneven(self) -> tuple[str, ...]:
        """The letters of the routing that differ from layer to layer."""
        own = [layer.letters() for layer in layers_of(self.config)]
        return tuple(k for k in self.config.attention.routing_letters if len({sizes[k] for sizes in own}) > 1)


def parse(text: str, extra: Sequence[str], lengths: Mapping[str, int | None]) -> Subject:
    """The subject that ``NAME,FIELD=VALUE,…`` names, with the assignments of ``extra`` too; or a user's module,
    ``FILE.py:FUNCTION,NAME=INTEGER,…``, which takes no more than its own.

    Raises ConfigError, with the valid names, for a preset, field, value or length that does not exist.
    """
    name = text.partition(",")[0]
    if ":" in name:
        from headcount.bench.macs import module, module_subject

        return module_subject.of_module(name, module.settings(assignments(text)))
    full = ",".join((text, *extra))
    config = preset(name, parse_overrides(name, assignments(full)))
    resolved = resolve_lengths(config, lengths)
    # A length that the model has no positions for is refused before anything is printed.
    ledger_of(config, resolved)
    return Subject(full, name, config, resolved)


def assignments(text: str) -> list[str]:
    """The ``FIELD=VALUE`` parts of a subject's text; a value may hold commas of its own."""
    found: list[str] = []
    for part in text.split(",")[1:]:
        if "=" in part or not found:
            found.append(part)
        else:
            found[-1] += f",{part}"
    return found


def spelled(name: str, overrides: Mapping[str, Any]) -> list[str]:
    """The ``FIELD=VALUE`` texts that change preset ``name`` to the sizes of ``overrides``."""
    attention = ATTENTIONS[overrides.get("attention", PRESETS[name]["attention"])]
    # What a preset leaves out may be derived from fields that are changed: only a default of its own is left unsaid.
    defaults = {f.name: f.default for cls in (attention, MODELS[PRESETS[name]["model"]]) for f in fields(cls)}
    plain = {**defaults, **PRESETS[name]}
    return [f"{field}={_text(value)}" for field, value in overrides.items() if plain.get(field) != value]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
