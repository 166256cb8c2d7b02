"""What is kept of a count: its contractions and parameters by name, and how they were asked for. Imports no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger

if TYPE_CHECKING:
    from headcount.bench.isolated.module_count import ModuleCount

WRITTEN_ELEMENTWISE = "elementwise_contraction"
KINDS = (*MAC_KINDS, WRITTEN_ELEMENTWISE)
"""What a kept count holds: contractions, those written elementwise and summed too."""


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor: its name in the module, ``layers.0.weight``, and its sizes."""

    path: str
    shape: tuple[int, ...]
    trainable: bool = True

    @property
    def params(self) -> int:
        """Its elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class Asked:
    """How a module was counted: FILE.py:FUNCTION, the integers that it was given, and the options of the count."""

    module: str
    settings: Mapping[str, int] = field(default_factory=dict)
    device: str | None = None
    allow_uncounted: bool = False
    elementwise: str = "report"
    formulas: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """The options of the count, by the names that ``isolated.module_count.count_module`` takes."""
        names = ("device", "allow_uncounted", "elementwise", "formulas")
        return {name: getattr(self, name) for name in names}

    def told(self) -> dict[str, str]:
        """The same in words, the module and its integers too; what is as it is without being asked for left out."""
        said = {"module": self.module, **{f"--set {name}": str(size) for name, size in self.settings.items()}}
        usual = Asked("").options()
        return said | {name: str(value) for name, value in self.options().items() if value != usual[name]}


@dataclass(frozen=True)
class Saved:
    """One count. ``terms`` are its contractions; those written elementwise are in ``macs`` where ``included``.

    ``uncounted`` are operations that nobody knows, ``inputs`` the tensors that the module was given, both in words.
    ``inputs`` and ``versions`` None where they are not known, ``asked`` for a module that was at hand, not named.
    """

    name: str
    terms: tuple[Entry, ...]
    parameters: tuple[Parameter, ...]
    included: bool = False
    uncounted: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    versions: Mapping[str, str] | None = None
    asked: Asked | None = None

    @property
    def macs(self) -> int:
        """The headline: multiply-accumulates of one forward pass."""
        return sum(term.size for term in self.terms if self.counts(term))

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.parameters)

    def counts(self, term: Entry) -> bool:
        """Whether ``term`` is in ``macs``."""
        return self.included or term.kind != WRITTEN_ELEMENTWISE

    @property
    def elementwise_macs(self) -> int:
        """Those of contractions written elementwise, whether they are in ``macs`` or beside them."""
        return sum(term.size for term in self.terms if term.kind == WRITTEN_ELEMENTWISE)


def terms_of(ledger: Iterable[Mapping[str, Any]], elementwise: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    """The contractions of a ledger's records, and of lines of elementwise products those that are contractions."""
    found = [term for term in Ledger.from_records(ledger) if term.kind in KINDS]
    if not any(term.kind == WRITTEN_ELEMENTWISE for term in found):
        lines = [line for line in elementwise if line["kind"] == WRITTEN_ELEMENTWISE]
        found += [Entry(line["path"], line["kind"], line["dims"], times=line["times"]) for line in lines]
    return tuple(found)


def parameters_of(records: Iterable[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """The parameters that a module's answer lists."""
    return tuple(
        Parameter(".".join(filter(None, (one["path"], one["name"]))), tuple(one["shape"]), one["trainable"])
        for one in records
    )


def of_answer(count: "ModuleCount", asked: Asked, versions: Mapping[str, str]) -> Saved:
    """Return what is stored of the count of a user module, which was made as ``asked`` says."""
    return Saved(
        name=asked.module,
        terms=terms_of(count.ledger.as_records(), count.elementwise),
        parameters=parameters_of(count.parameters),
        included=asked.elementwise == "include",
        uncounted=tuple(line["text"] for line in count.unsupported),
        inputs=count.inputs,
        versions=versions,
        asked=asked,
    )
