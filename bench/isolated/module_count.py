"""Count a user module in a separate process. Imports no torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headcount.bench.contractions.modules import ModuleRecord, Modules
from headcount.bench.counters.base import Count, CounterError, as_record
from headcount.bench.errors import UsageError
from headcount.bench.isolated.run import ProcessExited, run_isolated
from headcount.bench.isolated.target import Target
from headcount.bench.output.progress import stage
from headcount.bench.snapshot.snapshot import CountRequest
from headcount.formulas.ledger import Ledger, at
from headcount.formulas.published.expressions import evaluate
from headcount.formulas.rank import Transfer

ACTIVATIONS = {
    "saved_bytes": ("saved_bytes", True),
    "peak_forward_bytes": ("peak_bytes", False),
    "peak_training_bytes": ("peak_bytes", True),
}
"""Field of trace.memory.Activations, and whether of a training step, by column."""
DECODING = ("decode_macs", "decode_bytes", "kv_bytes", "kv_token_bytes")
"""Columns of a decode step."""
MEASURED = (*ACTIVATIONS, *DECODING, "training_macs", "forward_bytes")
"""Columns of accounts.ACCOUNTS that need a further run of a user module."""


@dataclass(frozen=True)
class ModuleCount(Modules):
    """The count of one forward pass of a user module over the whole batch, or of forward and ``backward``.

    ``bytes_moved``, ``causal_macs`` and ``other_flops`` are those of bench.contractions.costs.

    ``macs`` is the headline, which ``headline`` names: ``dispatched`` or ``with_elementwise``. ``ledger`` holds all
    dispatched contractions, ``elementwise`` the products written elementwise. The other sequences are records as
    ``--format json`` prints them: ``parameters`` by tensor, ``counters`` with their causes, ``audit`` of every
    operation.
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

    def as_record(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        lists = {name: list(map(vars, getattr(self, name))) for name in ("modules", "collectives")}
        ledgers = {name: getattr(self, name).as_records() for name in ("ledger", "elementwise")}
        return {**vars(self), **ledgers, **lists}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ModuleCount":
        """Return the count that :meth:`as_record` wrote."""
        lists = {
            name: tuple(kind(**one) for one in record[name])
            for name, kind in (("modules", ModuleRecord), ("collectives", Transfer))
        }
        ledgers = {name: Ledger.from_records(record[name]) for name in ("ledger", "elementwise")}
        return cls(**{**record, **ledgers, **lists})


def count_module(
    spec: str,
    settings: Mapping[str, Any],
    counters: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    element_bytes: int = 2,
    context: int | None = None,
    roots: Mapping[str, str] | None = None,
    **options: Any,
) -> ModuleCount:
    """Count a target by every counter of ``counters``; ``options`` are those of snapshot.CountRequest.

    ``columns`` of MEASURED are measured too, by ``element_bytes`` and ``context`` of accounts.Assumptions. With a
    ``plan`` what one rank of the divided target does is counted: FILE.py:FUNCTION takes the module and returns it
    divided over ``ranks`` ranks, of which ``rank`` is counted; of a preset it is a plan as formulas.plan reads it, of
    whose pipeline stages one of each kind is counted, its name before the paths of its modules. The function of
    a spec in ``roots`` must be defined in a file below that folder.
    Raises what run_isolated does, and CounterError for unsupported operations. A counter that ends the process has
    that as the reason for its missing count.
    """
    how = {"counters": list(counters), "columns": list(columns), "element_bytes": element_bytes, "context": context}
    request = make_request(spec, settings, options, roots=dict(roots or {}), **how)
    if request["plan"]:
        return _merged(_count_stages(request))
    try:
        return _count(request)
    except ProcessExited:
        if not counters:
            raise
    count, reported = _count({**request, "counters": []}), []
    for name in counters:
        try:
            reported += _count({**request, "counters": [name]}).counters
        except ProcessExited as error:
            failed = Count(name, count.macs, None, f"it ended its process, with exit code {error.code}")
            reported.append(as_record(failed))
    return replace(count, counters=reported)


def make_request(spec: str, settings: Mapping[str, Any], options: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """Return the request of a count by ``options`` of CountRequest; ``how`` are further arguments of count_module."""
    defaults = {"task": "count", "spec": spec, "counters": [], "columns": [], "saved": False, "roots": {}}
    return defaults | vars(CountRequest(spec, dict(settings), **options)) | how


def _count(request: Mapping[str, Any]) -> ModuleCount:
    return ModuleCount.from_record(_answer(request))


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    tools = ", ".join(request["counters"])
    with stage(f"counting {request['spec']}" + (f" with {tools}" if tools else "")):
        answer = run_isolated(request)
    if "refused" in answer:
        raise CounterError("headcount", request["spec"], answer["refused"])
    return answer


def count_ranks(target: Target, plan: str, *, backward: bool, saved: bool) -> dict[str, ModuleCount]:
    """Return the count of a rank of each class of equal ranks of a preset under ``plan``, by pipeline stage.

    ``saved``: count the bytes of saved activations too. Raises UsageError for a plan whose ranks cannot be counted.
    """
    options = {"lengths": target.lengths, "backward": backward, "plan": plan}
    return _count_stages(make_request(target.spec, target.settings, options, saved=saved))


def _count_stages(request: Mapping[str, Any]) -> dict[str, ModuleCount]:
    stages = _answer({**request, "task": "rank"})["stages"]
    return {stage: ModuleCount.from_record(record) for stage, record in stages.items()}


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


def parse_formulas(words: Sequence[str]) -> dict[str, str]:
    """Return expressions by operator from OPERATOR=EXPRESSION words. Raise UsageError for anything else."""
    out = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            if not (equals and name):
                raise ValueError("is no OPERATOR=EXPRESSION")
            evaluate(text, dict.fromkeys(re.findall(r"[a-z]\d*", text), 1))
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(f"--formula {word}: {error}") from error
        out[name] = text
    return out
