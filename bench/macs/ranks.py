"""``--plan``: what one rank of a preset computes, holds and sends under a parallel plan, in closed form and counted."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headcount.bench.accounts import Assumptions, NoAccount, context, step
from headcount.bench.case import Case, describe_input
from headcount.bench.errors import UsageError
from headcount.bench.isolated.module_count import ModuleCount, count_ranks
from headcount.bench.snapshot.snapshot import Target
from headcount.bench.table import Column, Row, Section, Table, macs_column, params_column
from headcount.formulas.backward import backward
from headcount.formulas.decoding import cache_elements
from headcount.formulas.ledger import Entry, Size
from headcount.formulas.rank import BYTES, INDEX, PARAMETER, REDUCTION, STATE_BYTES, RankCost, Transfer, rank_costs
from headcount.models.configs.suggest import choices

_bytes = partial(Column, unit="bytes", kind="int", of="bytes")
RANK_COLUMNS = [
    Column("stage", "stage"),
    Column("ranks", "ranks", kind="int", priority=2),
    macs_column("rank_macs", "forward\nMACs", priority=0),
    macs_column("step_macs", "step\nMACs", priority=0),
    params_column("rank_params", "params", priority=2),
    _bytes("state_bytes", "state", priority=3),
    _bytes("kv_bytes", "KV cache", priority=3),
    _bytes("sent_bytes", "sent,\nforward", priority=1),
    _bytes("step_sent_bytes", "sent,\nstep", priority=0),
    _bytes("sync_bytes", "gradient\nsum", priority=0),
    _bytes("saved_bytes", "saved\nactivations", priority=4),
    Column("saved_by", "saved\nby", priority=4),
    Column("collectives", "collectives", priority=3, wraps=20),
]
TRANSFER_COLUMNS = [
    Column("path", "module", code=True),
    Column("kind", "collective"),
    Column("axis", "axis"),
    Column("group", "ranks", kind="int", priority=2),
    Column("phase", "pass"),
    Column("element", "type", priority=4),
    Column("times", "times", kind="int"),
    Column("sent", "sent", "elements", kind="int", of="elements", priority=3),
    _bytes("bytes", "sent", priority=0),
]
_LAYERS = re.compile(r"(?:(?<=\.)|^)\d+(-\d+)?(?=\.|$)")
"""Indices of repeated layers in a path: 7, or 0-5."""
VERDICT = Column("verdict", "counted", priority=0, wraps=20)
EQUAL, NOT_COUNTED, COUNTED, CLOSED_FORM = "equal", "not counted", "count", "formula"


def chosen_columns(names: Sequence[str]) -> list[Column]:
    """Return the columns of these names after those that identify a row; all for none. Raise UsageError for others."""
    known = {column.key: column for column in RANK_COLUMNS[2:]}
    for name in names:
        if name not in known:
            raise UsageError(f"--plan has no column {name!r}; {choices(name, known)}")
    return [*RANK_COLUMNS[:2], *(known[name] for name in names or known)]


def sections(
    case: Case, names: Sequence[str] = (), element_bytes: Mapping[str, int] = BYTES, *,
    target: Target | None = None, training: bool = False,
) -> Iterator[Section]:  # fmt: skip
    """Yield a table with a row for each class of equal ranks, and one of their collectives.

    ``names`` are its columns, all by default. ``target``, the same case: a rank of each class is counted too, with
    ``training`` its backward pass, and a row that differs from its closed form is a failure. Raises PlanError where
    the plan does not fit the case.
    """
    columns, costs = chosen_columns(names), case.ranks
    saved = any(column.key == "saved_bytes" for column in columns)
    counts, reasons = {}, []
    if target:
        try:
            counts = count_ranks(replace(target, plan=str(case.plan), backward=training), saved=saved)
        except UsageError as error:
            reasons = [str(error)]
    recipe = ", ".join(f"{name} {size}" for name, size in STATE_BYTES.items())
    notes = [
        f"Input of a rank and microbatch: {describe_input(case.lengths)}. A step is forward and backward of one "
        "microbatch; gradients are summed once a step.",
        f"Sent: bytes that leave a rank in a ring or by direct sends; {element_bytes[PARAMETER]} an element, "
        f"{element_bytes[REDUCTION]} in sums of gradients, {element_bytes[INDEX]} of an index.",
        f"State: bytes of a parameter by AdamW in mixed precision, {recipe}.",
    ]
    if saved:
        notes.append(
            f"Saved activations by {COUNTED}: storage that autograd keeps of the reference implementation, attention's "
            f"probabilities included; by {CLOSED_FORM}: the result of each operation once, without these."
        )
    if target:
        notes.append(
            f"Counted: MACs of {'a step' if training else 'the forward pass'}, parameters and elements sent, on a fake "
            "process group. Sends between stages, and sums of gradients without FSDP, are closed forms alone."
        )
    heading = f"{case.name} on {case.plan.ranks:,} ranks, {case.plan}"
    rows = []
    for cost, cache in zip(costs, _caches(case), strict=True):
        row = _values(cost, cache, element_bytes)
        failures = []
        if count := counts.get(cost.stage):
            row["verdict"] = verdict(cost, count, training)
            row |= {"saved_by": COUNTED, "saved_bytes": count.saved_bytes} if saved else {}
            if row["verdict"] != EQUAL:
                failures = [f"{case.name}, {cost.stage}: {row['verdict']}"]
        rows.append(Row(row, notes=reasons, records=[row], failures=failures))
    columns += [VERDICT] if target else []
    yield Section(Table(f"{case.name}-ranks", heading, columns, notes, note_column="verdict" if target else ""), rows)
    moved = [
        row for cost in costs for row in collective_rows(cost.transfers, element_bytes.__getitem__, stage=cost.stage)
    ]
    if moved:
        columns = [RANK_COLUMNS[0], *TRANSFER_COLUMNS]
        layout = Table(f"{case.name}-collectives", f"{case.name}: collectives of a rank", columns)
        yield Section(layout, moved, detail=True)


def verdict(cost: RankCost, count: ModuleCount, training: bool) -> str:
    """Return ``equal``, or the first module or collective in which the count of a rank differs from its closed form."""
    entries = [*cost.ledger, *(backward(cost.ledger) if training else ())]
    phases = ("forward",) + ("backward",) * training + ("sync",) * (training and cost.plan.zero == 3)
    closed = _amounts(entries, cost.held["weights"], (one for one in cost.transfers if one.axis != "pp"), phases)
    counted = _amounts(count.ledger, count.params, count.collectives, phases)
    for name, unit in closed | counted:
        if closed[name, unit] != counted[name, unit]:
            numbers = f"{counted[name, unit]:,} {unit} counted, {closed[name, unit]:,} in closed form"
            return f"{name or 'the model'}: {numbers}"
    return EQUAL


def _amounts(
    entries: Iterable[Entry], params: Size, transfers: Iterable[Transfer], phases: Sequence[str]
) -> Counter[tuple[str, str]]:
    """Return MACs by module, parameters, and elements sent by collective, axis and pass, each with its unit.

    Repeated layers are one; a sum of gradients belongs to the backward pass.
    """
    out = Counter()
    for entry in entries:
        out[_LAYERS.sub("*", entry.path), "MACs"] += entry.macs
    out["parameters", "elements"] = params
    for one in transfers:
        if one.phase in phases:
            when = "forward" if one.phase == "forward" else "backward"
            out[f"{one.kind} over {one.axis}, {when}", "elements sent"] += one.sent
    return out


def _caches(case: Case) -> list[Size | None]:
    """Return the cache elements of each class of ranks, all tokens of the input stored; None where nothing decodes."""
    stored = context(case, Assumptions())
    try:
        return [cache_elements(cost.ledger) for cost in rank_costs(step(case, stored, stored), case.plan)]
    except NoAccount:
        return [None] * len(case.ranks)


def _values(cost: RankCost, cache: Size | None, element_bytes: Mapping[str, int]) -> dict[str, Any]:
    numbers = Counter()
    for one in cost.transfers:
        numbers[one.kind, one.axis] += one.times
    return {
        "stage": cost.stage,
        "ranks": cost.ranks,
        "rank_macs": cost.ledger.macs,
        "step_macs": cost.step_macs,
        "rank_params": cost.ledger.params,
        "state_bytes": cost.state_bytes(),
        "kv_bytes": None if cache is None else cache * element_bytes[PARAMETER],
        "sent_bytes": cost.sent_bytes("forward", element_bytes=element_bytes),
        "step_sent_bytes": cost.sent_bytes("forward", "backward", element_bytes=element_bytes),
        "sync_bytes": cost.sent_bytes("sync", element_bytes=element_bytes),
        "saved_bytes": cost.activation_elements() * element_bytes[PARAMETER],
        "saved_by": CLOSED_FORM,
        "verdict": NOT_COUNTED,
        "collectives": ", ".join(f"{number} {kind} {axis}" for (kind, axis), number in numbers.items()),
    }


def collective_rows(transfers: Iterable[Transfer], bytes_of: Callable[[str], int], **more: str) -> list[Row]:
    """Return a row for equal collectives of repeated layers, with what leaves the rank; ``bytes_of`` an element."""
    sums: dict[Transfer, list[int]] = {}
    for one in transfers:
        equal = replace(one, path=_LAYERS.sub("*", one.path) or "(model)", own=0, times=1)
        times, sent = sums.get(equal, (0, 0))
        sums[equal] = times + one.times, sent + one.sent
    rows = []
    for one, (times, sent) in sums.items():
        values = {**more, **vars(one), "times": times, "sent": sent, "bytes": bytes_of(one.element) * sent}
        del values["own"]
        rows.append(Row(values, records=[values]))
    return rows
