"""Tables of bench.routing: shares per layer, experts or heads with their tokens, example runs, balance over steps."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain

from headcount.bench.routing import example
from headcount.bench.routing.inputs import Log
from headcount.bench.routing.stats import LayerRouting, group_tokens, percent, top_tokens
from headcount.bench.table import Column, Row, Section, Table
from headcount.bench.variants.variant import Routed

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}
EXTREMES = [
    Column("largest", "largest\nshare", **PERCENT, priority=0),
    Column("smallest", "smallest\nshare", **PERCENT, priority=0),
]


def extremes(counts: Sequence[int]) -> dict[str, Fraction]:
    """Return the largest and the smallest share of counts, in percent."""
    shares = percent(counts)
    return {"largest": max(shares), "smallest": min(shares)}


def by_unit(layers: Sequence[LayerRouting]) -> list[list[LayerRouting]]:
    """Return the layers grouped by what their tokens choose: heads, or experts."""
    units = dict.fromkeys(layer.routed.unit for layer in layers)
    return [[layer for layer in layers if layer.routed.unit == unit] for unit in units]


def layer_section(layers: Sequence[LayerRouting], name: str = "routing") -> Section:
    """Return a row for each routed layer: its experts' shares, sorted (Figures 3-4 of the MoA paper)."""
    routed = layers[0].routed
    table = Table(
        name,
        f"Shares of tokens per {routed.unit}",
        [
            Column("layer", "layer"),
            Column("tokens", "tokens", kind="int", priority=2),
            Column("routed", f"routed\n{routed.unit}s", kind="int", priority=2),
            Column("shared", f"shared\n{routed.unit}s", kind="int", priority=2),
            *EXTREMES,
            Column("sorted", "shares in %, sorted", wraps=24),
        ],
        notes_above=[routed.shares],
    )
    rows = []
    for layer in layers:
        same = {"layer": layer.path, "tokens": layer.tokens}
        values = {"routed": layer.num_experts, "shared": layer.num_shared, **extremes(layer.counts)}
        values["sorted"] = " ".join(f"{share:.1f}" for share in layer.sorted_percent)
        record = {"top_k": layer.top_k, "tokens_per_expert": layer.counts}
        record[f"num_shared_{routed.unit}s"] = layer.num_shared
        rows.append(Row(same | values, records=[same | record]))
    return Section(table, rows)


def expert_section(
    layers: Sequence[LayerRouting],
    top: int,
    min_count: int,
    name_of: Callable[[int], str] = str,
    class_of: Callable[[int], str] | None = None,
) -> Section:
    """Return a row for each expert or head, the most used first: share, MACs, tokens of highest PMI (Table 4).

    ``class_of`` adds the class of tokens with the highest PMI.
    """
    routed, unit = layers[0].routed, layers[0].routed.unit
    classes = [
        Column("class", "class of\nhighest PMI"),
        Column("class_pmi", "PMI of\nthe class", kind="fixed", digits=2, priority=3),
    ]
    executed = "MACs\nideal" if routed.released else "executed\nMACs"
    released = [Column("released_macs", "MACs\nas released", kind="int", of="MACs", priority=4)]
    table = Table(
        f"{unit}s",
        f"{unit.capitalize()}s and their tokens",
        [
            Column("layer", "layer"),
            Column(unit, unit, kind="int", priority=0),
            Column("count", "tokens", kind="int"),
            Column("share", "share", **PERCENT, priority=0),
            Column("macs", executed, kind="int", of="MACs", priority=2),
            *(released if routed.released else []),
            *(classes if class_of else []),
            Column("tokens", f"tokens of highest PMI,\nof those with at least\n{min_count} choices", wraps=24),
        ],
        notes_above=[
            f"PMI is p(token, {unit}) / (p(token) p({unit})), as in Table 4 of arXiv 2210.05144.",
            *dict.fromkeys(layer.routed.executed for layer in layers),
        ],
    )
    rows = [list(_expert_rows(layer, top, min_count, name_of, class_of)) for layer in layers]
    below = [_specialists(routed, same) for same in rows] if class_of else []
    return Section(table, list(chain.from_iterable(rows)), below)


def _expert_rows(layer: LayerRouting, top: int, min_count: int, name_of, class_of) -> Iterator[Row]:
    for head in range(layer.num_shared):
        values = {"layer": layer.path, "head": head, "count": layer.tokens, "macs": layer.every_token_macs.numerator}
        values["tokens"] = "shared: every token uses it"
        empty = dict.fromkeys(("share", "class", "class_pmi"))
        yield Row(empty | values | {"released_macs": values["macs"]}, records=[values | {"shared": True}])
    best = top_tokens(layer.chosen, top, min_count)
    by_class = top_tokens(group_tokens(layer.chosen, class_of), 1) if class_of else [[]] * layer.num_experts
    counts, unit = layer.counts, layer.routed.unit
    shares = percent(counts)
    for expert in sorted(range(layer.num_experts), key=lambda expert: (-counts[expert], expert)):
        # an expert without a token has no class
        name, value = next(iter(by_class[expert]), (None, None))
        values = {
            "layer": layer.path,
            unit: layer.num_shared + expert,
            "count": counts[expert],
            "share": shares[expert],
            "macs": layer.expert_macs[expert].numerator,
            "released_macs": layer.every_token_macs.numerator,
            "class": name,
            "class_pmi": value,
            "tokens": " ".join(f"{name_of(token)} ({float(value):.1f})" for token, value in best[expert]) or None,
        }
        record = {key: values[key] for key in ("layer", unit, "count", "macs", "class", "tokens")}
        record |= {"top_tokens": [[token, float(value)] for token, value in best[expert]], "shared": False}
        yield Row(values, records=[record])


SPECIALISED = 1.5
"""Least PMI of a class with an expert that specialises in it."""


def _specialists(routed: Routed, rows: Sequence[Row]) -> str:
    by_class: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.values[routed.unit]):
        if (row.values["class_pmi"] or 0) >= SPECIALISED:
            by_class.setdefault(row.values["class"], []).append(row.values[routed.unit])
    named = "; ".join(f"{name}: {', '.join(map(str, numbers))}" for name, numbers in sorted(by_class.items()))
    return (
        f"{sum(map(len, by_class.values()))} of {len(rows)} {routed.units} specialise: they take a class of "
        f"tokens at least {SPECIALISED} times as often as independence would give ({named or 'none'})."
    )


def runs_section(outcomes: Sequence[example.Outcome]) -> Section:
    """Return a row for each run of the example, in the form of Table 7."""
    layer = outcomes[0].layer
    table = Table(
        "runs",
        "L_a and L_z in the form of Table 7",
        [
            Column("label", "coefficients"),
            Column("loss", "task loss\n(nats)", kind="fixed", digits=3),
            Column("accuracy", "accuracy", **PERCENT),
            *EXTREMES,
            Column("L_a", "L_a", kind="fixed", digits=3),
            Column("L_z", "L_z", kind="fixed", digits=3),
        ],
        notes_above=[
            "Table 7 of arXiv 2210.05144 gives BLEU of translation models. Here: task loss and spread of the load of a "
            f"small model on a made-up task with {example.CLASSES} classes of tokens, {example.STEPS} steps, seed "
            f"{example.SEED}, K = {layer.top_k}, E = {layer.num_experts}, on held-out sequences. Losses without their "
            "coefficients."
        ],
    )
    rows = []
    for outcome in outcomes:
        values = {"label": example.label(outcome.coefficients), "loss": outcome.loss}
        values |= {"accuracy": 100 * outcome.accuracy, **extremes(outcome.layer.counts), **outcome.auxiliary}
        record = {
            "coefficients": outcome.coefficients,
            "loss": outcome.loss,
            "accuracy": outcome.accuracy,
            "auxiliary_losses": outcome.auxiliary,
            "tokens_per_expert": outcome.layer.counts,
        }
        rows.append(Row(values, records=[record]))
    return Section(table, rows)


def log_section(log: Log) -> Section:
    """Return the largest and smallest share of each layer at each logged training step."""
    table = Table(
        "balance",
        "Balance over training steps",
        [Column("step", "step", kind="int"), Column("layer", "layer", priority=0), *EXTREMES],
    )
    rows = []
    for step, layers in log:
        for path, counts in layers.items():
            same = {"step": step, "layer": path}
            rows.append(Row(same | extremes(counts), records=[same | {"tokens_per_expert": counts}]))
    return Section(table, rows)
