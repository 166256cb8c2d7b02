"""``--plan``: what one rank of a preset computes, holds and sends under a parallel plan, in closed form and counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headcount.bench.accounts import Assumptions, NoAccount, context, step
from headcount.bench.case import Case, describe_input
from headcount.bench.column import Column, bytes_column, macs_column, params_column
from headcount.bench.contractions.module_tree import folded
from headcount.bench.counting.agreement import difference
from headcount.bench.counting.count import count_ranks
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.output.layout import in_flops
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.targets.target import SHIPPED, Target, is_configuration
from headcount.formulas.backward import backward
from headcount.formulas.decoding import cache_elements
from headcount.formulas.ledger import Size
from headcount.formulas.plan import Plan
from headcount.formulas.rank import BYTES, INDEX, PARAMETER, REDUCTION, STATE_BYTES, RankCost, Transfer, rank_costs
from headcount.models.configs.suggest import choices

SHIPPED_NOTE = (
    "Counted: MACs of the forward pass and parameters of a rank under the plan that transformers ships, on a fake "
    "process group."
)
EQUAL, NOT_COUNTED, COUNTED, CLOSED_FORM = "equal", "not counted", "count", "formula"


@dataclass(frozen=True)
class RankRow(Row):
    """What one rank of a class of equal ranks computes, holds and sends, and whether a count of it is equal."""

    preset: str
    stage: str = shown(Column, "stage")
    ranks: int = shown(Column, "ranks", kind="int", priority=2)
    rank_macs: Size = shown(macs_column, "forward\nMACs", priority=0)
    step_macs: Size = shown(macs_column, "step\nMACs", priority=0)
    rank_params: Size = shown(params_column, "params", priority=2)
    state_bytes: Size = shown(bytes_column, "state", priority=3)
    kv_bytes: Size | None = shown(bytes_column, "KV cache", priority=3)
    sent_bytes: Size = shown(bytes_column, "sent,\nforward", priority=1)
    step_sent_bytes: Size = shown(bytes_column, "sent,\nstep", priority=0)
    sync_bytes: Size = shown(bytes_column, "gradient\nsum", priority=0)
    saved_bytes: Size = shown(bytes_column, "saved\nactivations", priority=4)
    saved_by: str = shown(Column, "saved\nby", priority=4)
    collectives: str = shown(Column, "collectives", priority=3, wraps=20)
    verdict: str = shown(Column, "counted", priority=0, wraps=20)
    notes: Sequence[str] = ()

    @property
    def failures(self) -> list[str]:
        """The difference, where the count is not equal."""
        return [] if self.verdict in (EQUAL, NOT_COUNTED) else [f"{self.preset}, {self.stage}: {self.verdict}"]


@dataclass(frozen=True)
class TransferRow(Row):
    """Equal collectives of a rank, those of repeated layers together; ``stage`` is None where the rank is the only one.

    ``sent``: elements that leave the rank.
    """

    stage: str | None = shown(Column, "stage")
    path: str = shown(Column, "module", code=True)
    kind: str = shown(Column, "collective")
    axis: str = shown(Column, "axis")
    group: Size = shown(Column, "ranks", kind="int", priority=2)
    phase: str = shown(Column, "pass")
    element: str = shown(Column, "type", priority=4)
    times: Size = shown(Column, "times", kind="int")
    sent: Size = shown(Column, "sent", "elements", kind="int", of="elements", priority=3)
    bytes: Size = shown(bytes_column, "sent", priority=0)


*RANK_COLUMNS, VERDICT = columns_of(RankRow)
STAGE, *TRANSFER_COLUMNS = columns_of(TransferRow)


def chosen_columns(names: Sequence[str]) -> list[Column]:
    """Return the columns of these names after those that identify a row; all for none. Raise UsageError for others."""
    known = {column.key: column for column in RANK_COLUMNS[2:]}
    for name in names:
        if name not in known:
            raise UsageError(f"--plan has no column {name!r}; {choices(name, known)}")
    return [*RANK_COLUMNS[:2], *(known[name] for name in names or known)]


def tables(
    case: Case, names: Sequence[str] = (), element_bytes: Mapping[str, int] = BYTES, *,
    target: Target | None = None, training: bool = False,
) -> list[Table]:  # fmt: skip
    """Return a table with a row for each class of equal ranks, and one of their collectives.

    ``names`` are its columns, all by default. ``target``, the same case: a rank of each class is counted too, with
    ``training`` its backward pass, and a row that differs from its closed form is a failure. Raises PlanError where
    the plan does not fit the case.
    """
    columns, plan = chosen_columns(names), case.plan or Plan()
    saved = any(column.key == "saved_bytes" for column in columns)
    counts: Mapping[str, Count] = {}
    reasons: list[str] = []
    is_file = target is not None and is_configuration(target.spec)
    if target:
        columns.append(VERDICT)
        try:
            counted = _as_shipped(target, plan) if is_file else replace(target, plan=str(plan), backward=training)
            counts = count_ranks(counted, columns=["saved_bytes"] * saved)
        except UsageError as error:
            reasons = [str(error)]
    rows, moved = [], []
    for cost, cache in zip(case.ranks, _caches(case), strict=True):
        row = replace(_closed_form(case.name, cost, cache, element_bytes), notes=reasons)
        count = counts.get(cost.stage)
        if count and is_file and (count.macs, count.params) != (cost.ledger.macs, cost.ledger.params):
            other = f"{count.macs:,} MACs and {count.params:,} parameters"
            row = replace(row, notes=[f"the plan that transformers ships divides otherwise: {other} of a rank"])
        elif count:
            row = replace(row, verdict=EQUAL if is_file else verdict(cost, count, training))
            if saved and count.columns:
                saved_bytes = cost.under_way * count.columns["saved_bytes"]
                row = replace(row, saved_by=COUNTED, saved_bytes=saved_bytes)
        rows.append(row)
        moved += transfer_rows(cost.transfers, element_bytes.__getitem__, cost.stage)
    heading = f"{case.name} on {plan.ranks:,} ranks, {plan}"
    counted_as = SHIPPED_NOTE if is_file else _counted_note(training)
    notes = [*_notes(case, element_bytes, saved), *([counted_as] if target else []), *case.notes]
    notes += case.kernel_notes if saved else []
    note_column = "verdict" if target else ""
    found: list[Table] = [Table(f"{case.name}-ranks", heading, columns, rows, notes, note_column=note_column)]
    if moved:
        heading = f"{case.name}: collectives of a rank"
        found.append(Table(f"{case.name}-collectives", heading, [STAGE, *TRANSFER_COLUMNS], moved, detail=True))
    return found


def _as_shipped(target: Target, plan: Plan) -> Target:
    """Return a configuration under the plan that transformers ships. Raises UsageError for a plan of more than tp."""
    if plan.tp == 1 or plan != Plan(tp=plan.tp):
        raise UsageError("tp alone is counted of a configuration, by the plan that transformers ships")
    return replace(target, plan=SHIPPED, ranks=plan.tp)


def _counted_note(training: bool) -> str:
    return (
        f"Counted: MACs of {'a step' if training else 'the forward pass'}, parameters and elements sent, on a fake "
        "process group. Sends between stages, and sums of gradients without FSDP, are closed forms alone."
    )


def _notes(case: Case, element_bytes: Mapping[str, int], saved: bool) -> list[str]:
    recipe = ", ".join(f"{name} {size}" for name, size in STATE_BYTES.items())
    plan = case.plan or Plan()
    number = plan.mb
    notes = [
        f"Input of a rank and microbatch: {describe_input(case.lengths)}. A step is forward and backward of "
        f"{'one microbatch' if number == 1 else f'{number:,} microbatches'}; gradients are summed once a step.",
        f"Sent: bytes that leave a rank in a ring or by direct sends; {element_bytes[PARAMETER]} an element, "
        f"{element_bytes[REDUCTION]} in sums of gradients, {element_bytes[INDEX]} of an index.",
        f"State: bytes of a parameter by AdamW in mixed precision, {recipe}.",
    ]
    if saved:
        notes.append(
            f"Saved activations by {COUNTED}: storage that autograd keeps of the reference implementation, attention's "
            f"probabilities included; by {CLOSED_FORM}: the result of each operation once, without these."
        )
    if saved and plan.pp > 1 and number > 1:
        notes.append(
            "A stage keeps those of as many microbatches as there are stages from it to the last: it alternates "
            "forward and backward passes (1F1B). Of equal stages the row is the first."
        )
    return notes


def sentence(rows: Sequence[RankRow], as_flops: bool) -> str:
    """Return the costs of the rank whose step is the longest, and how many classes of ranks equal their closed form."""
    most = max(rows, key=lambda row: row.step_macs)
    macs, params = (next(one for one in RANK_COLUMNS if one.key == key) for key in ("rank_macs", "rank_params"))
    macs = in_flops(macs) if as_flops else macs
    where = f" of stage {most.stage}" if most.stage != "all" else ""
    costs = f"{macs.text(most.rank_macs)} {macs.of} and {params.text(most.rank_params)} parameters"
    counted = [row.verdict for row in rows if row.verdict != NOT_COUNTED]
    if not counted:
        return f"{most.preset}, a rank{where}: {costs}; no rank is counted."
    equal = f"{counted.count(EQUAL)} of {len(counted)} counted are equal to the closed form"
    return f"{most.preset}, a rank{where}: {costs}; classes of equal ranks: {equal}."


def verdict(cost: RankCost, count: Count, training: bool) -> str:
    """Return ``equal``, or the first module or collective in which the count of a rank differs from its closed form."""
    entries = [*cost.ledger, *(backward(cost.ledger) if training else ())]
    phases = ("forward",) + ("backward",) * training + ("sync",) * (training and cost.plan.zero == 3)
    transfers = (one for one in cost.transfers if one.axis != "pp")
    return difference(count, entries, cost.held["weights"], transfers, phases) or EQUAL


def _caches(case: Case) -> list[Size | None]:
    """Return the cache elements of each class of ranks, all tokens of the input stored; None where nothing decodes."""
    stored = context(case, Assumptions())
    try:
        return [cache_elements(cost.ledger) for cost in rank_costs(step(case, stored, stored), case.plan or Plan())]
    except NoAccount:
        return [None] * len(case.ranks)


def _closed_form(preset: str, cost: RankCost, cache: Size | None, element_bytes: Mapping[str, int]) -> RankRow:
    numbers: Counter[tuple[str, str]] = Counter()
    for one in cost.transfers:
        numbers[one.kind, one.axis] += one.times
    return RankRow(
        preset=preset,
        stage=cost.stage,
        ranks=cost.ranks,
        rank_macs=cost.ledger.macs,
        step_macs=cost.plan.mb * cost.step_macs,
        rank_params=cost.ledger.params,
        state_bytes=cost.state_bytes(),
        kv_bytes=None if cache is None else cache * element_bytes[PARAMETER],
        sent_bytes=cost.sent_bytes("forward", element_bytes=element_bytes),
        step_sent_bytes=cost.plan.mb * cost.sent_bytes("forward", "backward", element_bytes=element_bytes),
        sync_bytes=cost.sent_bytes("sync", element_bytes=element_bytes),
        saved_bytes=cost.under_way * cost.activation_elements() * element_bytes[PARAMETER],
        saved_by=CLOSED_FORM,
        collectives=", ".join(f"{number} {kind} {axis}" for (kind, axis), number in numbers.items()),
        verdict=NOT_COUNTED,
    )


def transfer_rows(
    transfers: Iterable[Transfer], bytes_of: Callable[[str], int], stage: str | None = None
) -> list[TransferRow]:
    """Return a row for equal collectives of repeated layers, with what leaves the rank; ``bytes_of`` an element."""
    sums: dict[Transfer, tuple[Size, Size]] = {}
    for one in transfers:
        equal = replace(one, path=folded(one.path) or "(model)", own=0, times=1)
        times, sent = sums.get(equal, (0, 0))
        sums[equal] = times + one.times, sent + one.sent
    rows = []
    for one, (times, sent) in sums.items():
        size = bytes_of(one.element) * sent
        rows.append(
            TransferRow(stage, one.path, one.kind, one.axis, one.group, one.phase, one.element, times, sent, size)
        )
    return rows
