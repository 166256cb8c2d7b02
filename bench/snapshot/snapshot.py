"""One module's count, as files store it: contractions and parameters by name, and how they were counted."""

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from math import prod
from typing import TYPE_CHECKING, Any

import headcount
from headcount.formulas.ledger import MAC_KINDS, Entry
from headcount.formulas.rank import RankCost, Transfer
from headcount.models.configs.targets import is_layer

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
class Target:
    """A user module, a preset, a configuration file or a hub name, what is changed of it, and how it is counted.

    Args:
        spec: FILE.py:NAME, package.module:NAME, a preset, the variant of a layer, ``config.json`` or ``hf:NAME``.
        settings: keywords of the function or class, or fields of the configuration.
        inputs: texts of --input, ``SIZES[:DTYPE]`` or ``NAME=SIZES[:DTYPE]``.
        dtype: type of the weights, one of isolated.target.DTYPES; None for the module's own.
        lengths: input lengths by their names in isolated.target.LENGTHS.
        device, allow_unsupported, elementwise, formulas, formula_set, backward: options of the count.
        plan: divides the target over ranks, of which ``rank`` is counted: a function FILE.py:FUNCTION, with ``ranks``,
            or of a preset a plan as formulas.plan reads it.
    """

    spec: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    dtype: str | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    device: str | None = None
    allow_unsupported: bool = False
    elementwise: str = "report"
    formulas: Mapping[str, str] = field(default_factory=dict)
    formula_set: str | None = None
    backward: bool = False
    plan: str | None = None
    ranks: int | None = None
    rank: int = 0

    @property
    def name(self) -> str:
        """TARGET or TARGET,NAME=VALUE,… of a command; that of a layer has its lengths."""
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.settings.items()}
        words = [f"{name}={value}" for name, value in values.items()]
        if not is_layer(self.spec):
            return ",".join((self.spec, *words))
        return f"{self.spec}:{','.join((*words, *(f'{name}={size}' for name, size in self.lengths.items())))}"

    @property
    def code(self) -> tuple[str, ...]:
        """The specs of the code that the count runs: the target's, and that of a function that divides it."""
        return (self.spec, self.plan) if self.plan and self.ranks else (self.spec,)

    def options(self) -> dict[str, Any]:
        """Return all but the spec and its settings by name."""
        return {name: value for name, value in vars(self).items() if name not in ("spec", "settings")}

    def described(self) -> dict[str, str]:
        """Return the spec, its settings and the options that differ from their defaults, as text."""
        defaults = Target("").options()
        found = {f"--set {name}": value for name, value in self.settings.items()}
        for name, value in self.options().items():
            if name == "lengths":
                found |= {f"--{length.replace('_', '-')}": size for length, size in value.items()}
            elif value != defaults[name]:
                found[name] = " ".join(value) if name == "inputs" else value
        return {"module": self.spec, **{name: str(value) for name, value in found.items()}}


LIMITED = {"macs": "MACs", "params": "parameters"}
"""Quantities that a lock may limit, and their units in texts."""


@dataclass(frozen=True)
class CountSnapshot:
    """The count of one forward pass. ``terms`` are its contractions, those written elementwise included.

    ``macs`` includes those written elementwise where ``included``. ``unsupported`` are unsupported operations and
    ``inputs`` the module's input tensors, both as text. ``inputs`` and ``versions`` are empty where they are unknown;
    ``collectives`` are those of a rank of a divided module. ``uncalled``, the paths of modules that did not run, and
    ``request`` are None for a module that a program counted itself. ``limits``: the most of LIMITED that a lock allows,
    instead of the same count.
    """

    name: str
    terms: tuple[Entry, ...]
    parameters: tuple[Parameter, ...]
    included: bool = False
    unsupported: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    request: Target | None = None
    collectives: tuple[Transfer, ...] = ()
    uncalled: tuple[str, ...] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """TARGET or TARGET,NAME=VALUE,… of a command; the name of a module that a program counted."""
        return self.request.name if self.request else self.name

    @property
    def unmet_limits(self) -> dict[str, str]:
        """Why the count does not meet its limits, by quantity. MACs that are incomplete meet none."""
        found = {}
        for name, most in self.limits.items():
            if (value := getattr(self, name)) > most:
                found[name] = f"{value:,} {LIMITED[name]}, above the limit of {most:,}"
            elif name == "macs" and self.unsupported:
                found[name] = f"its MACs lack those of {', '.join(self.unsupported)}, which --formula gives"
        return found

    @property
    def macs(self) -> int:
        """MACs of one forward pass."""
        return sum(term.size for term in self.terms if self.counts(term))

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.parameters)

    @property
    def sent(self) -> int:
        """Elements that leave the rank."""
        return sum(one.sent for one in self.collectives)

    @property
    def elementwise_macs(self) -> int:
        """MACs of contractions written elementwise, whether ``macs`` includes them or not."""
        return sum(term.size for term in self.terms if term.kind == WRITTEN_ELEMENTWISE)

    def counts(self, term: Entry) -> bool:
        """Return whether ``macs`` includes ``term``."""
        return self.included or term.kind != WRITTEN_ELEMENTWISE


def natural(path: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a module path that puts layers.2 before layers.10."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in path.split(".")]


def terms_of(ledger: Iterable[Entry], elementwise: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the contractions of a ledger, and those of ``elementwise`` where the ledger does not include them."""
    found = [entry for entry in ledger if entry.kind in KINDS]
    if all(entry.kind != WRITTEN_ELEMENTWISE for entry in found):
        found += [entry for entry in elementwise if entry.kind == WRITTEN_ELEMENTWISE]
    return tuple(found)


def parameters_of(records: Iterable[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """Return the parameters of records with a ``path``, of the tensor or of the module that has it by ``name``."""
    return tuple(
        Parameter(".".join(filter(None, (one["path"], one.get("name")))), tuple(one["shape"]), one["trainable"])
        for one in records
    )


def snapshot_of_rank(name: str, cost: RankCost) -> CountSnapshot:
    """Return the snapshot of the closed form of a rank."""
    weights = [entry for entry in cost.ledger if entry.weight for _ in range(entry.times)]
    parameters = tuple(Parameter(entry.path, tuple(entry.weight.values())) for entry in weights)
    return CountSnapshot(name, terms_of(cost.ledger, ()), parameters, collectives=cost.transfers)


def snapshot_of(count: "ModuleCount", target: Target | None = None) -> CountSnapshot:
    """Return the snapshot of the count of ``target``, or of a module that a program counted.

    Versions are those of headcount, Python, torch (without its build) and the libraries of the count.
    """
    torch = version("torch").partition("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    return CountSnapshot(
        name=target.spec if target else count.name,
        terms=terms_of(count.ledger, count.elementwise),
        parameters=parameters_of(count.parameters),
        included=count.included,
        unsupported=tuple(line["text"] for line in count.unsupported),
        inputs=tuple(count.inputs),
        versions={"headcount": headcount.__version__, "torch": torch, "python": python, **count.libraries},
        request=target,
        collectives=tuple(count.collectives),
        uncalled=count.uncalled_modules(),
    )
