"""Count a user module in a separate process. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from headcount.bench.contractions.modules import ModuleRecord, Modules
from headcount.bench.counters.base import Count, as_record
from headcount.bench.isolated.run import ProcessExited, run_isolated
from headcount.bench.output.progress import stage
from headcount.bench.snapshot.snapshot import Target
from headcount.formulas.ledger import Ledger, at
from headcount.formulas.rank import Transfer

ACTIVATIONS = {
    "saved_bytes": ("saved_bytes", True),
    "peak_forward_bytes": ("peak_bytes", False),
    "peak_training_bytes": ("peak_bytes", True),
}
"""Field of trace.memory.Activations, and whether of a training step, by column."""
DECODING = ("decode_macs", "decode_bytes", "kv_bytes", "kv_token_bytes")
"""Columns of a decode step."""
MASKED = ("causal_macs", "windowed_macs")
"""Columns without the pairs that masks hide."""
MEASURED = (*ACTIVATIONS, *DECODING, *MASKED, "training_macs", "forward_bytes")
"""Columns of accounts.ACCOUNTS that need a further run of a user module."""


@dataclass(frozen=True)
class ModuleCount(Modules):
    """The count of one forward pass of a user module over the whole batch, or of forward and ``backward``.

    ``bytes_moved``, ``causal_macs`` and ``other_flops`` are those of bench.contractions.costs.

    ``macs`` is the headline, which ``headline`` names: ``dispatched`` or, where ``included``, ``with_elementwise``.
    ``ledger`` holds all dispatched contractions, ``elementwise`` the products written elementwise. The other sequences
    are records as ``--format json`` prints them: ``parameters`` by tensor, ``counters`` with their causes, ``audit`` of
    every operation.
    ``libraries`` are the versions of those that decide which operations torch runs (bench.env). ``notes`` are sentences
    about how the module was made, to print below a table. ``measured`` are values of MEASURED columns, or reasons.
    ``collectives`` and ``saved_bytes``, of the activations that a forward pass keeps, are those of one rank of a module
    that is divided.
    """

    device: str
    macs: int
    headline: str
    dispatched: int
    with_elementwise: int
    inputs: Sequence[str]
    ledger: Ledger
    elementwise: Ledger
    bytes_moved: int
    causal_macs: int | None
    other_flops: Mapping[str, int]
    parameters: Sequence[dict[str, Any]]
    audit: Sequence[dict[str, Any]]
    libraries: Mapping[str, str]
    why_not_meta: str | None = None
    counters: Sequence[dict[str, Any]] = ()
    backward: bool = False
    included: bool = False
    modules: Sequence[ModuleRecord] = ()
    notes: Sequence[str] = ()
    measured: Mapping[str, int | str] = field(default_factory=dict)
    collectives: Sequence[Transfer] = ()
    saved_bytes: int | None = None

    @property
    def passes(self) -> str:
        """Return the passes that were run, as text."""
        return "one forward and backward pass" if self.backward else "one forward pass"

    @property
    def unsupported(self) -> list[dict[str, Any]]:
        """The audit's records of operations that may hold products and are not counted."""
        return [line for line in self.audit if line["state"] == "unknown"]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ModuleCount":
        """Return the count that the process of user code wrote as JSON."""
        lists = {
            name: tuple(kind(**one) for one in record[name])
            for name, kind in (("modules", ModuleRecord), ("collectives", Transfer))
        }
        ledgers = {name: Ledger.from_records(record[name]["entries"]) for name in ("ledger", "elementwise")}
        return cls(**{**record, **ledgers, **lists})


def count_module(
    target: Target,
    counters: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    bytes_each: Mapping[str, int | Fraction] | None = None,
    context: int | None = None,
    window: int | None = None,
    roots: Mapping[str, str] | None = None,
) -> ModuleCount:
    """Count ``target`` by every counter of ``counters``.

    ``columns`` of MEASURED are measured too, by ``bytes_each``, ``context`` and ``window`` of accounts.Assumptions.
    With a ``plan`` what one rank of the divided target does is counted; of a preset's pipeline stages one of each kind
    is counted, its name before the paths of its modules. The function of a spec in ``roots`` must be defined in a file
    below that folder.
    Raises what run_isolated does, and CounterError for unsupported operations. A counter that ends the process has
    that as the reason for its missing count.
    """
    each = {kind: str(size) for kind, size in (bytes_each or {}).items()}
    options = {"columns": list(columns), "bytes_each": each, "context": context, "window": window}
    options["roots"] = dict(roots or {})
    if target.plan:
        return _merged(_count("rank", target, saved=False, **options))
    try:
        return _merged(_count("count", target, counters=list(counters), **options))
    except ProcessExited:
        if not counters:
            raise
    count, reported = _merged(_count("count", target, counters=[], **options)), []
    for name in counters:
        try:
            reported += _merged(_count("count", target, counters=[name], **options)).counters
        except ProcessExited as error:
            failed = Count(name, count.macs, None, f"it ended its process, with exit code {error.code}")
            reported.append(as_record(failed))
    return replace(count, counters=reported)


def count_ranks(target: Target, *, saved: bool) -> dict[str, ModuleCount]:
    """Return the count of a rank of each class of equal ranks of a preset under its plan, by pipeline stage.

    ``saved``: count the bytes of saved activations too. Raises UsageError for a plan whose ranks cannot be counted.
    """
    return _count("rank", target, saved=saved, roots={})


def _count(task: str, target: Target, **options: Any) -> dict[str, ModuleCount]:
    """Return the count of each pipeline stage; of one stage where the target is not divided into several."""
    tools = ", ".join(options.get("counters", ()))
    with stage(f"counting {target.spec}" + (f" with {tools}" if tools else "")):
        answer = run_isolated({"task": task, **vars(target), **options})
    return {name: ModuleCount.from_record(record) for name, record in answer["stages"].items()}


def _merged(stages: Mapping[str, ModuleCount]) -> ModuleCount:
    """Return the counts of pipeline stages as one, with the stage before each path."""
    first, *others = stages.values()
    if not others:
        return first
    numbers = ("macs", "dispatched", "with_elementwise", "bytes_moved")

    def placed(stage: str, one: Any) -> Any:
        if isinstance(one, dict):
            return {**one, "path": at(stage, one["path"])}
        return replace(one, path=at(stage, one.path))

    names = ("ledger", "collectives", "modules", "elementwise", "parameters", "audit")
    parts = {
        name: tuple(placed(stage, one) for stage, count in stages.items() for one in getattr(count, name))
        for name in names
    }
    parts |= {name: Ledger(parts[name]) for name in ("ledger", "elementwise")}
    sums = {name: sum(getattr(count, name) for count in stages.values()) for name in numbers}
    return replace(first, **sums, **parts, causal_macs=None, other_flops={})
