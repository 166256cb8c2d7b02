"""``--plan``: what one rank of a preset computes, holds and sends under a parallel plan."""

from collections.abc import Iterator, Mapping

from headcount.bench.accounts import Assumptions, NoAccount, context, step
from headcount.bench.case import Case, describe_input
from headcount.bench.table import Column, Row, Section, Table, macs_column, params_column
from headcount.formulas.decoding import cache_elements
from headcount.formulas.ledger import Size
from headcount.formulas.plan import Plan
from headcount.formulas.rank import BYTES, INDEX, PARAMETER, REDUCTION, STATE_BYTES, RankCost, Transfer, rank_costs

RANK_COLUMNS = [
    Column("stage", "stage"),
    Column("ranks", "ranks", kind="int", priority=2),
    macs_column("rank_macs", "forward\nMACs", priority=0),
    macs_column("step_macs", "step\nMACs", priority=0),
    params_column("rank_params", "params", priority=2),
    *(
        Column(key, head, "bytes", kind="int", of="bytes", priority=priority)
        for key, head, priority in (
            ("state_bytes", "state", 3),
            ("kv_bytes", "KV cache", 3),
            ("sent_bytes", "sent,\nforward", 1),
            ("step_sent_bytes", "sent,\nstep", 0),
            ("sync_bytes", "gradient\nsum", 0),
        )
    ),
]
TRANSFER_COLUMNS = [
    Column("stage", "stage"),
    Column("path", "module", code=True),
    Column("kind", "collective"),
    Column("axis", "axis"),
    Column("group", "ranks", kind="int", priority=2),
    Column("phase", "pass"),
    Column("times", "times", kind="int"),
    Column("sent", "sent", "elements", kind="int", of="elements", priority=3),
    Column("bytes", "sent", "bytes", kind="int", of="bytes", priority=0),
]


def sections(case: Case, text: str, plan: Plan, element_bytes: Mapping[str, int] = BYTES) -> Iterator[Section]:
    """Yield a table with a row for each class of equal ranks, and one of their collectives.

    Raises PlanError where the plan does not fit the case.
    """
    costs = rank_costs(case.ledger, plan)
    recipe = ", ".join(f"{name} {size}" for name, size in STATE_BYTES.items())
    notes = [
        f"Input of a rank and microbatch: {describe_input(case.lengths)}. A step is forward and backward of one "
        "microbatch; gradients are summed once a step.",
        f"Sent: bytes that leave a rank in a ring or by direct sends; {element_bytes[PARAMETER]} an element, "
        f"{element_bytes[REDUCTION]} in sums of gradients, {element_bytes[INDEX]} of an index.",
        f"State: bytes of a parameter by AdamW in mixed precision, {recipe}.",
    ]
    heading = f"{case.name} on {plan.ranks:,} ranks, {text}"
    caches = _caches(case, plan)
    rows = [_row(cost, cache, element_bytes) for cost, cache in zip(costs, caches, strict=True)]
    yield Section(Table(f"{case.name}-ranks", heading, RANK_COLUMNS, notes), rows)
    moved = [_transfer_row(cost.stage, one, element_bytes) for cost in costs for one in cost.transfers]
    if moved:
        layout = Table(f"{case.name}-collectives", f"{case.name}: collectives of a rank", TRANSFER_COLUMNS)
        yield Section(layout, moved, detail=True)


def _caches(case: Case, plan: Plan) -> list[Size | None]:
    """Return the cache elements of each class of ranks, all tokens of the input stored; None where nothing decodes."""
    stored = context(case, Assumptions())
    try:
        return [cache_elements(cost.ledger) for cost in rank_costs(step(case, stored, stored), plan)]
    except NoAccount:
        return [None] * len(rank_costs(case.ledger, plan))


def _row(cost: RankCost, cache: Size | None, element_bytes: Mapping[str, int]) -> Row:
    values = {
        "stage": cost.stage,
        "ranks": cost.ranks,
        "rank_macs": cost.macs,
        "step_macs": cost.step_macs,
        "rank_params": cost.params,
        "state_bytes": cost.state_bytes(),
        "kv_bytes": None if cache is None else cache * element_bytes[PARAMETER],
        "sent_bytes": cost.sent_bytes(element_bytes=element_bytes),
        "step_sent_bytes": cost.sent_bytes(training=True, element_bytes=element_bytes),
        "sync_bytes": cost.sync_bytes(element_bytes),
    }
    return Row(values, records=[values])


def _transfer_row(stage: str, one: Transfer, element_bytes: Mapping[str, int]) -> Row:
    values = {name: getattr(one, name) for name in ("path", "kind", "axis", "group", "phase", "times", "sent")}
    values |= {"stage": stage, "bytes": element_bytes[one.element] * one.sent}
    return Row(values, records=[values])
