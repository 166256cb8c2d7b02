"""A configuration as a case: its closed form at input lengths. Imports no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from headcount.bench.case import Case
from headcount.bench.closed_form.store import LETTERS, TYPES, find_activations, find_closed_form
from headcount.bench.closed_form.terms import ClosedForm
from headcount.bench.errors import UsageError
from headcount.bench.targets.target import Target, is_configuration
from headcount.formulas.ledger import Ledger, Mask, Size
from headcount.formulas.plan import Plan
from headcount.formulas.rank import TENSOR
from headcount.models.configs.base import ConfigError

ELEMENT_BYTES = 2
"""Bytes of a number of activations that have a closed form."""
DECODER_LENGTHS = ("batch_size", "seq_len")
"""Input lengths of a causal decoder."""


@dataclass(frozen=True)
class ConfigurationCase(Case):
    """A configuration at input lengths, whose ledgers are those of its closed form, ``config``.

    ``target``: the configuration, as a count takes it.
    """

    config: Any
    target: Target = field(default_factory=lambda: Target(""))

    @property
    def model(self) -> tuple:
        """Return a key that is equal for equal configurations and lengths."""
        return self.target.spec, repr(self.target.settings), tuple(sorted(self.lengths.items()))

    @property
    def is_layer(self) -> bool:
        """False: it is a whole model."""
        return False

    @property
    def length(self) -> int:
        """The sequence length."""
        return self.lengths["seq_len"]

    @property
    def notes(self) -> list[str]:
        """How the closed form was proved."""
        return [
            f"Closed form of {self.config.model}: {self.config.proof}.",
            *(f"{note.rstrip('.')}." for note in self.config.notes[1:]),
            *self._whole_on_ranks(),
            *self._unknown_results(),
        ]

    def _unknown_results(self) -> list[str]:
        """Return that what a run keeps is not known, under a plan, in a sentence."""
        is_unknown = self.plan is not None and not self.config.results
        return (
            ["What a run keeps for the gradients has no closed form here; a run may keep more."] if is_unknown else []
        )

    @property
    def kernel_notes(self) -> list[str]:
        """That norms are no single operations, where the code of the model writes them out."""
        if not any(entry.kind == "reduction" for entry in self.ledger):
            return []
        return [
            "Activations and times are of the operations that transformers runs: norms and rotations are written out, "
            "each step with its result, where a preset has one fused kernel for each."
        ]

    def _whole_on_ranks(self) -> list[str]:
        """Return which weights of products tensor parallelism leaves whole on each rank, in a sentence, if any."""
        if self.plan is None or self.plan.tp == 1:
            return []
        products = (entry for entry in self.ledger if entry.macs and entry.weight)
        paths = {entry.path for entry in products if not entry.weight.keys() & {*TENSOR, "E"}}
        whole = sorted({path for path in paths if "router" not in path.split(".")})
        return [f"Whole on each rank of tp: {', '.join(whole)}."] if whole else []

    @property
    def form(self) -> Any:
        """What a module of closed forms has: whether the model decodes, and where its attention is causal."""
        return _form_of(self.config)

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger of a pass without a cache. Raises ConfigError for a length without a position."""
        self._check_positions(self.lengths["seq_len"])
        sizes = self._sizes(self.lengths["seq_len"])
        return self.config.of_tokens(*sizes) if self.plan is None else self.config.of_training(*sizes)

    def step(self, stored: Size, new: Size = 1) -> Ledger:
        """Return the ledger of ``new`` tokens with ``stored`` in the cache afterwards: of one token, or of all.

        Raises ConfigError for other numbers, whose counts were not compared, and for a length without a position.
        """
        if new not in (1, stored):
            raise ConfigError(f"{self.name} has a closed form of one new token or of a whole prompt, not of {new}")
        self._check_positions(stored)
        B, _ = self._sizes(0)
        return self.config.of_step(B, new, stored - new)

    def _sizes(self, tokens: Size) -> tuple[Size, Size]:
        """Return sequences and tokens, those of ``sizes`` first."""
        return self.sizes.get("B", self.lengths["batch_size"]), self.sizes.get("T", tokens)

    def _check_positions(self, tokens: Size) -> None:
        most = self.config.positions
        if most is not None and isinstance(tokens, int) and tokens > most:
            raise ConfigError(f"{self.name} has {most:,} positions, and {tokens:,} tokens need as many")

    def check_runs(self) -> None:
        """Do nothing: the model was built."""

    @property
    def ideal(self) -> None:
        """None: a configuration has one form."""
        return None

    def stored(self, tokens: int | None, window: int | None) -> int | None:
        """Return how many of the last ``tokens`` tokens a step reads. Raises UsageError for a second window."""
        self._check_window(window)
        return super().stored(tokens, window)

    def _check_window(self, window: int | None) -> None:
        """Raise UsageError for a window that is not the configuration's own."""
        own = self.config.windows
        if window is not None and own and own != (window,):
            sizes = " and ".join(f"{size:,}" for size in own)
            raise UsageError(f"--window {window}: the configuration has a window of {sizes}; --set changes it")

    def masked_macs(self, window: int | None) -> int:
        """Return the MACs without the pairs that masks hide, with a ``window`` where the configuration has none.

        Raises UsageError where the masks are not known.
        """
        self._check_window(window)
        if self.config.no_mask:
            raise UsageError(f"{self.config.no_mask}; headcount count {self.name} measures masks")
        B, T = self._sizes(self.lengths["seq_len"])
        return self.config.masked(B, T, None if window is None else Mask(window=window)).macs

    def activation_bytes(self, name: str, element_bytes: int | Fraction | None) -> int:
        """Return the bytes of a column of activations. Raises UsageError where they have no closed form."""
        if element_bytes not in (None, ELEMENT_BYTES):
            raise UsageError(f"activations have a closed form in the types of a run, and at {ELEMENT_BYTES} bytes each")
        types = [TYPES] if element_bytes is None else []
        found = find_activations(self.target, name, *types).value(self.lengths["batch_size"], self.lengths["seq_len"])
        if found is None:
            raise UsageError(f"{name} have no closed form here; headcount count {self.name} measures them")
        return found

    def letters(self) -> tuple[str, ...]:
        """Return T, where all sizes are polynomials in it."""
        has_chunks = any(factor.chunk for term in self.config.forward for factor in term.factors)
        return () if has_chunks else ("T",)

    def ledger_in(self, letter: str, size: Size) -> Ledger:
        """Return the ledger with another length."""
        return replace(self, sizes={**self.sizes, letter: size}).ledger

    def at(self, letter: str, size: int) -> "ConfigurationCase":
        """Return the case at another length. Raises ConfigError for one without a position."""
        target = replace(self.target, lengths={**self.target.lengths, "seq_len": size})
        moved = replace(self, lengths={**self.lengths, "seq_len": size}, target=target)
        _ = moved.ledger
        return moved


def _form_of(config: ClosedForm) -> SimpleNamespace:
    """Return what accounts ask of a module of closed forms."""
    found: dict[str, Any] = {"NO_DECODE_STEP": config.no_step, "slope_changes": lambda **_: _turns(config)}
    seen = [term for term in config.forward if term.kind in ("scores", "values")]
    if seen and not config.no_mask and all(term.mask == Mask() for term in seen):
        found["CAUSAL_PATHS"] = "|".join(re.escape(path) for path in dict.fromkeys(term.path for term in seen))
    return SimpleNamespace(**found)


def _turns(config: ClosedForm) -> tuple[int, ...]:
    """Return the numbers of stored tokens from which on a step costs another polynomial."""
    of_terms = {one.window for term in config.step for one in term.factors if one.window}
    windows = sorted(of_terms | {one.window for one in config.stored if one.window})
    return tuple(size for window in windows for size in (window - 1, window))


def case_of(target: Target, called: str | None = None, plan: Plan | None = None) -> Case:
    """Return the case of ``target``, a preset, a layer or a configuration. Raises what its kind of case raises."""
    if is_configuration(target.spec):
        return configuration_case(target, called, plan)
    return Case.of(target.spec, target.settings, target.lengths, called=called, plan=plan)


def configuration_case(target: Target, called: str | None = None, plan: Plan | None = None) -> ConfigurationCase:
    """Return the case of ``target``, a configuration; its closed form is derived and proved once.

    Under a ``plan``, of one rank too, its sizes are in the letters that plans divide.

    Raises UsageError for an option that a closed form does not have, for a missing length, and, with the entry, where
    counts have no closed form.
    """
    name = called or target.name
    if target.inputs or target.device or target.backward or target.plan:
        raise UsageError(f"{name}: a closed form takes lengths, --set and --dtype")
    if unknown := sorted(target.lengths.keys() - set(DECODER_LENGTHS)):
        raise UsageError(f"{name}: a closed form takes {', '.join(DECODER_LENGTHS)}, not {', '.join(unknown)}")
    if "seq_len" not in target.lengths:
        raise UsageError(f"{name} needs its length; write {name},T=128 or --seq-len 128")
    for length, size in target.lengths.items():
        if size < 1:
            raise ConfigError(f"{length} must be at least 1, not {size}")
    lengths: Mapping[str, int] = {"batch_size": 1, **target.lengths}
    form = find_closed_form(target, *([LETTERS] if plan else []))
    return ConfigurationCase(name, form, lengths, plan=plan, target=target)
