"""Sides of a comparison: a preset with some of its fields changed, a user module, or a configuration.

Importable without torch.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.bench.accounts import Assumptions
from headcount.bench.case import LENGTHS as PRESET_LENGTHS
from headcount.bench.case import Case
from headcount.bench.closed_form.case import ConfigurationCase, configuration_case
from headcount.bench.closed_form.rules import model_of
from headcount.bench.counters.base import CounterError
from headcount.bench.counting.count import derive_module
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.errors import UsageError, flag
from headcount.bench.snapshot import file
from headcount.bench.store import count
from headcount.bench.targets.target import LENGTHS, Target, is_configuration, parse_target
from headcount.bench.training_flops import flops_per_token, module_ledger
from headcount.formulas.conventions import Rule
from headcount.formulas.ledger import Entry, Ledger, Size, counted_weights
from headcount.formulas.parts import parts_of_run
from headcount.formulas.published.expressions import expression
from headcount.models.configs.base import ConfigError
from headcount.models.configs.targets import has_closed_form, split


@dataclass(frozen=True)
class CountedCase:
    """A user module or a configuration as its count: what a Case has of a closed form, as far as a run shows it.

    ``length``: None, as no other can be asked for.
    """

    count: Count
    preset: None = None
    length: None = None
    ideal_ledger: None = None
    has_paths: bool = False

    @property
    def target(self) -> Target:
        """What was counted."""
        assert self.count.target
        return self.count.target

    @property
    def name(self) -> str:
        """TARGET or TARGET,NAME=VALUE,… of a command."""
        return self.count.label

    @property
    def lengths(self) -> Mapping[str, Any]:
        """The given lengths as text that follows the name."""
        return {**self.target.settings, **self.target.lengths}

    @property
    def inputs(self) -> Sequence[str]:
        """Place, shape and type of each input tensor."""
        return self.count.inputs

    @cached_property
    def ledger(self) -> Ledger:
        """Its products and parameters, as rules read them."""
        return module_ledger(self.count, self.count.active_params)

    @cached_property
    def ledger_by_module(self) -> Ledger:
        """The products of the run, and an entry for the parameters of each module."""
        modules = [one for one in self.count.modules or () if one.params]
        weights = (counted_weights(one.path, one.params, one.active_params) for one in modules)
        return Ledger((*self.count.ledger, *weights))

    @cached_property
    def part_of(self) -> Callable[[Entry], str]:
        """The function of the part of an entry by module: attention, feed-forward, vocabulary or other."""
        shapes: dict[str, list[tuple[int, ...]]] = {}
        for one in self.count.parameters:
            shapes.setdefault(one.module, []).append(one.shape)
        return parts_of_run(tuple(self.count.ledger), shapes).part_of

    @property
    def target_tokens(self) -> int | None:
        """The tokens of its input; None of a model without them."""
        return self.count.tokens or None

    @property
    def tokens(self) -> int:
        """The same, 1 of a model without them."""
        return self.count.tokens or 1

    @property
    def samples(self) -> int:
        """The number of sequences or images of its input."""
        return self.count.samples

    def flops_per_token(self, rule: Rule, entries: Ledger) -> Size:
        """Return the FLOPs per token of a training step. Raises RuleRefused where ``rule`` does not apply.

        ``entries`` are all: the ledger of a run has no paths by which some could be chosen.
        """
        return flops_per_token(model_of(self.count, rule), rule)

    @property
    def causal_macs(self) -> int | None:
        """MACs without the pairs that masks hide, after a further run where the count has that; None where they are not
        known."""
        found = self._known("causal_macs")
        return self.count.causal_macs if found is None else found

    @property
    def cache(self) -> int | None:
        """The elements of its cache at its length, of a count with 1 byte each; None where they are not known."""
        return self._known("kv_bytes")

    @property
    def token_cache(self) -> int | None:
        """The elements that a token adds to the cache of one sequence; None as of ``cache``."""
        return self._known("kv_token_bytes")

    @property
    def no_step(self) -> str:
        """Why its cache is not known."""
        columns = self.count.columns or {}
        of_cache = (columns.get(name) for name in ("kv_bytes", "kv_token_bytes"))
        return "; ".join(dict.fromkeys(one.reason for one in of_cache if isinstance(one, Unknown)))

    def _known(self, column: str) -> int | None:
        """Return the value of a column; None of none."""
        value = (self.count.columns or {}).get(column)
        return value if isinstance(value, int) else None

    def check_runs(self) -> None:
        """Do nothing: the module has already run."""

    def letters(self) -> tuple[str, ...]:
        """Return T, where the user's function takes it."""
        return ("T",) if "T" in self.target.settings and not is_configuration(self.target.spec) else ()

    def ledger_in(self, letter: str, size: Size) -> Ledger:
        """Return the derived polynomials in ``letter`` as a ledger. Raises UsageError if the count is no polynomial."""
        rest = {name: value for name, value in self.target.settings.items() if name != letter}
        start = max(2, self.target.settings[letter])
        found = derive_module(Target(self.target.spec, rest), (letter,), {letter: (start, 1)})
        if found.witness:
            raise UsageError(f"{self.name} has no closed form in {letter}: {found.witness}")
        forms = {kind: expression(str(form)).value({letter: size}) for kind, form in found.by_kind.items()}
        return Ledger(tuple(Entry("", kind, {letter: form}) for kind, form in forms.items()))

    def at(self, letter: str, size: int) -> "CountedCase":
        """Return the module built with another size."""
        return CountedCase(count(replace(self.target, settings={**self.target.settings, letter: size})))


Side = Case | CountedCase
"""A model of a comparison."""


def parse_sides(
    texts: Sequence[str], given: Mapping[str, Any], columns: Sequence[str] = (), assumed: Assumptions | None = None
) -> list[Side]:
    """Return the models that ``texts`` name, each with those options of ``given`` that change it.

    A module has the ``columns`` that need a further run too, under the assumptions ``assumed``.

    Raises UsageError for an option that changes none of them, and for the file of a count beside a preset, and what
    parse raises.
    """
    takes = {text: options_of(text) for text in texts}
    for name in given:
        if not any(name in names for names in takes.values()):
            each = (f"{text} takes {' '.join(map(flag, names)) or 'none'}" for text, names in takes.items())
            raise UsageError(f"{flag(name)} is no option of these models: {'; '.join(each)}")
    # files first: a missing one is the error, not the preset on the other side
    order = sorted(takes, key=is_saved, reverse=True)
    found = {}
    for text in order:
        own = {name: given[name] for name in takes[text] if name in given}
        found[text] = parse(text, columns, assumed, is_counted=is_saved(order[0]), **own)
    if is_saved(order[0]) and isinstance(found[order[-1]], Case):
        raise UsageError(f"{order[0]} is compared with a file of a count or a module FILE.py:FUNCTION, not {order[-1]}")
    return [found[text] for text in texts]


def options_of(text: str) -> Sequence[str]:
    """Return the names of the options that change a model: none for the file of a count."""
    if is_saved(text):
        return ()
    spec, _ = split(text)
    if is_configuration(spec):
        return ("set", "input", "dtype", *LENGTHS)
    if ":" in spec:
        return ("set", "input", "dtype", "seq_len", "batch_size")
    return ("set", *PRESET_LENGTHS)


def parse(
    text: str,
    columns: Sequence[str] = (),
    assumed: Assumptions | None = None,
    *,
    is_counted: bool = False,
    **options: Any,
) -> Side:
    """Return the case of ``TARGET,NAME=VALUE,…`` with the ``options`` of parse_target, or the count in a file.

    A configuration is counted where it has no closed form, or ``is_counted``.

    Raises ConfigError, with the valid names, for a preset, field, value or length that does not exist, and UsageError
    for a file that cannot be read.
    """
    if is_saved(text):
        return CountedCase(file.read(text))
    given = dict.fromkeys(("set", "input", "dtype")) | options
    target = parse_target(text, Namespace(**given))
    if is_configuration(target.spec) and not is_counted:
        # why it has none, a count tells or does not need
        with suppress(UsageError, ConfigError):
            closed = configuration_case(target)
            _ = closed.ledger
            return closed
    if ":" in target.spec or is_configuration(target.spec):
        return CountedCase(count(target, columns=columns, given=assumed))
    called = ",".join((text, *(given["set"] or ())))
    case = Case.of(target.spec, target.settings, target.lengths, called=called)
    # Raise for a length beyond the model's positions before anything is printed.
    _ = case.ledger
    return case


def count_of(side: Side) -> Count:
    """Return the count of a user module, a configuration or a file, also where the configuration has a closed form."""
    if isinstance(side, ConfigurationCase):
        return count(side.target)
    assert isinstance(side, CountedCase)
    return side.count


def counted(case: Side, counters: Sequence[str], device: str | None) -> dict[str, int | Unknown]:
    """Return each counter's reported count minus its known additions.

    For a user module or a configuration it is headcount's count under the name of every counter. Raises CounterError
    where a tool fails.
    """
    found: dict[str, int | Unknown] = {}
    if isinstance(case, CountedCase | ConfigurationCase):
        return found | dict.fromkeys(counters, count_of(case).dispatched)
    for tool in count(case, counters, device=device).tools or ():
        if tool.has_failed:
            raise CounterError(f"{tool.counter} did not count {case.name}: ", tool.reason or "")
        if tool.macs is None:
            found[tool.counter] = Unknown(tool.reason or "")
        else:
            found[tool.counter] = tool.macs - sum(tool.additions.values())
    return found


def is_saved(text: str) -> bool:
    """Return whether ``text`` names a file of a count, existing or not, rather than a preset or a module."""
    if has_closed_form(re.split("[,:]", text)[0]):
        return False
    # the suffix identifies a file that does not exist, as b.txt
    path = Path(text)
    if is_configuration(text) and path.is_file():
        return file.is_count(text)
    return text.endswith((".json", ".lock")) or (":" not in text and (path.is_file() or path.suffix[1:].isalpha()))
