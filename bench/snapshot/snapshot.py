"""One module's count, as files store it: contractions and parameters by name, and how they were counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger

if TYPE_CHECKING:
    from headcount.bench.isolated.module_count import ModuleCount

WRITTEN_ELEMENTWISE = "elementwise_contraction"
KINDS = (*MAC_KINDS, WRITTEN_ELEMENTWISE)
"""Kinds of a snapshot's terms: contractions, and those written as an elementwise product and a sum."""


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor: its name in the module, ``layers.0.weight``, and its shape."""

    path: str
    shape: tuple[int, ...]
    trainable: bool = True

    @property
    def params(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class CountRequest:
    """How a module is counted: FILE.py:FUNCTION, the function's integers, and the options of the count."""

    module: str
    settings: Mapping[str, int] = field(default_factory=dict)
    device: str | None = None
    allow_unsupported: bool = False
    elementwise: str = "report"
    formulas: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the options by the names of the arguments of ``isolated.module_count.count_module``."""
        names = ("device", "allow_unsupported", "elementwise", "formulas")
        return {name: getattr(self, name) for name in names}

    def described(self) -> dict[str, str]:
        """Return the module, its integers and the options that differ from their defaults, as text."""
        text = {"module": self.module, **{f"--set {name}": str(size) for name, size in self.settings.items()}}
        defaults = CountRequest("").options()
        return text | {name: str(value) for name, value in self.options().items() if value != defaults[name]}


@dataclass(frozen=True)
class CountSnapshot:
    """The count of one forward pass. ``terms`` are its contractions, those written elementwise included.

    ``macs`` includes those written elementwise where ``included``. ``unsupported`` are unsupported operations and
    ``inputs`` the module's input tensors, both as text. ``inputs`` and ``versions`` are None where they are unknown,
    ``request`` for a module that a program counted itself.
    """

    name: str
    terms: tuple[Entry, ...]
    parameters: tuple[Parameter, ...]
    included: bool = False
    unsupported: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    versions: Mapping[str, str] | None = None
    request: CountRequest | None = None

    @property
    def macs(self) -> int:
        """MACs of one forward pass."""
        return sum(term.size for term in self.terms if self.counts(term))

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.parameters)

    @property
    def elementwise_macs(self) -> int:
        """MACs of contractions written elementwise, whether ``macs`` includes them or not."""
        return sum(term.size for term in self.terms if term.kind == WRITTEN_ELEMENTWISE)

    def counts(self, term: Entry) -> bool:
        """Return whether ``macs`` includes ``term``."""
        return self.included or term.kind != WRITTEN_ELEMENTWISE


def terms_of(ledger: Iterable[Mapping[str, Any]], elementwise: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    """Return the contractions of a ledger's records, and those among the records of elementwise products."""
    found = [term for term in Ledger.from_records(ledger) if term.kind in KINDS]
    if not any(term.kind == WRITTEN_ELEMENTWISE for term in found):
        lines = [line for line in elementwise if line["kind"] == WRITTEN_ELEMENTWISE]
        found += [Entry(line["path"], line["kind"], line["dims"], times=line["times"]) for line in lines]
    return tuple(found)


def parameters_of(records: Iterable[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """Return the parameters of a module's answer."""
    return tuple(
        Parameter(".".join(filter(None, (one["path"], one["name"]))), tuple(one["shape"]), one["trainable"])
        for one in records
    )


def of_answer(count: "ModuleCount", request: CountRequest, versions: Mapping[str, str]) -> CountSnapshot:
    """Return what is stored of the count of a user module, counted as ``request`` asks."""
    return CountSnapshot(
        name=request.module,
        terms=terms_of(count.ledger.as_records(), count.elementwise),
        parameters=parameters_of(count.parameters),
        included=request.elementwise == "include",
        unsupported=tuple(line["text"] for line in count.unsupported),
        inputs=count.inputs,
        versions=versions,
        request=request,
    )
