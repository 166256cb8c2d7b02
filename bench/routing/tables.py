"""The tables of bench.routing: shares per layer, experts or heads with their tokens, runs, balance over steps."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from headcount.bench.routing import task
from headcount.bench.routing.example import EXAMPLES, label, statement
from headcount.bench.routing.stats import LayerRouting, grouped, pmi, shares, top_tokens
from headcount.bench.routing.task import Outcome
from headcount.bench.table import Column, Row, Section, Table

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}


def by_unit(layers: Sequence[LayerRouting]) -> list[list[LayerRouting]]:
    """The layers whose tokens choose the same sort of thing together: heads of attentions, experts of blocks."""
    units = dict.fromkeys(layer.unit for layer in layers)
    return [[layer for layer in layers if layer.unit == unit] for unit in units]


def layer_section(layers: Sequence[LayerRouting], name: str = "routing") -> Section:
    """One row for each routed layer: its experts' shares, sorted (Figures 3-4)."""
    routed = layers[0].routed
    shared = [
        Column("heads", "routed\nheads", kind="int", priority=2),
        Column("shared", "shared\nheads", kind="int", priority=2),
    ]
    table = Table(
        name,
        f"Shares of tokens per {routed.unit}",
        [
            Column("layer", "layer"),
            Column("tokens", "tokens", kind="int", priority=2),
            *(shared if "s" in routed.sizes else []),
            Column("largest", "largest\nshare", **PERCENT, priority=0),
            Column("smallest", "smallest\nshare", **PERCENT, priority=0),
            Column("sorted", "shares in %, sorted", wraps=24),
        ],
        notes_above=[routed.shares],
    )
    return Section(table, [_layer_row(layer) for layer in layers])


def _layer_row(layer: LayerRouting) -> Row:
    percent = sorted((100 * share for share in layer.shares), reverse=True)
    values = {
        "layer": layer.path,
        "tokens": layer.tokens,
        "heads": layer.num_experts,
        "shared": layer.num_shared,
        "largest": percent[0],
        "smallest": percent[-1],
        "sorted": " ".join(f"{float(value):.1f}" for value in percent),
    }
    record = {"layer": layer.path, "tokens": layer.tokens, "top_k": layer.top_k, "tokens_per_expert": layer.counts}
    if "s" in layer.routed.sizes:
        record["num_shared_heads"] = layer.num_shared
    return Row(values, records=[record])


def expert_section(
    layers: Sequence[LayerRouting],
    top: int,
    least: int,
    name_of: Callable[[int], str] = str,
    class_of: Callable[[int], str] | None = None,
) -> Section:
    """One row for each expert or head, the most used first: its share, its MACs, the tokens of highest PMI (Table 4).

    With ``class_of`` also the class of tokens that it is for, by PMI.
    """
    routed, unit = layers[0].routed, layers[0].unit
    classes = [
        Column("class", "class of\nhighest PMI"),
        Column("class_pmi", "PMI of\nthe class", kind="fixed", digits=2, priority=3),
    ]
    released = [Column("released_macs", "MACs\nas released", kind="int", of="MACs", priority=4)]
    table = Table(
        f"{unit}s",
        f"{unit.capitalize()}s and their tokens",
        [
            Column("layer", "layer"),
            Column(unit, unit, kind="int", priority=0),
            Column("count", "tokens", kind="int"),
            Column("share", "share", **PERCENT, priority=0),
            Column(
                "macs",
                "MACs\nideal" if routed.released else "executed\nMACs",
                kind="int",
                of="MACs",
                priority=2,
            ),
            *(released if routed.released else []),
            *(classes if class_of else []),
            Column("tokens", f"tokens of highest PMI,\nof those with at least\n{least} choices", wraps=24),
        ],
        notes_above=[
            f"PMI is p(token, {unit}) / (p(token) p({unit})), as in Table 4 of arXiv 2210.05144.",
            *dict.fromkeys(layer.routed.executed for layer in layers),
        ],
    )
    rows = [row for layer in layers for row in _expert_rows(layer, top, least, name_of, class_of)]
    below = [_specialists(layer, class_of) for layer in layers] if class_of else []
    return Section(table, rows, below)


def _expert_rows(layer, top, least, name_of, class_of) -> Iterator[Row]:
    for head in range(layer.num_shared):
        values = {"layer": layer.path, "head": head, "count": layer.tokens, "macs": layer.every_token_macs.numerator}
        record = {**values, "shared": True}
        everything = {"released_macs": values["macs"], "tokens": "shared: every token uses it"}
        yield Row(dict.fromkeys(("share", "class", "class_pmi")) | values | everything, records=[record])
    best = top_tokens(layer.chosen, top, least)
    by_class = _classes(layer, class_of) if class_of else [(None, None)] * layer.num_experts
    order = sorted(range(layer.num_experts), key=lambda expert: (-layer.counts[expert], expert))
    for expert in order:
        values = {
            "layer": layer.path,
            layer.unit: layer.num_shared + expert,
            "count": layer.counts[expert],
            "share": 100 * layer.shares[expert],
            "macs": layer.expert_macs[expert].numerator,
            "released_macs": layer.every_token_macs.numerator,
            "class": by_class[expert][0],
            "class_pmi": by_class[expert][1],
            "tokens": " ".join(f"{name_of(token)} ({float(value):.1f})" for token, value in best[expert]) or None,
        }
        record = {key: values[key] for key in ("layer", layer.unit, "count", "macs", "class")}
        record["top_tokens"] = [[token, float(value)] for token, value in best[expert]]
        if "s" in layer.routed.sizes:
            record["shared"] = False
        yield Row(values, records=[record])


def _classes(layer: LayerRouting, class_of) -> list[tuple[str | None, Fraction | None]]:
    """Each expert's class of highest PMI; None for an expert without a token."""
    values = pmi(_by_class(layer, class_of))
    return [max(found.items(), key=lambda pair: (pair[1], pair[0])) if found else (None, None) for found in values]


def _by_class(layer: LayerRouting, class_of):
    tokens = {token for counts in layer.chosen for token in counts}
    return grouped(layer.chosen, {token: class_of(token) for token in tokens})


SPECIALISED = 1.5
"""An expert is for a class that it takes at least so many times as often as independence would give."""


def _specialists(layer: LayerRouting, class_of) -> str:
    found: dict[str, list[int]] = {}
    for expert, (name, value) in enumerate(_classes(layer, class_of), layer.num_shared):
        if value is not None and value >= SPECIALISED:
            found.setdefault(name, []).append(expert)
    number, units = sum(map(len, found.values())), layer.routed.units
    named = "; ".join(f"{name}: {', '.join(map(str, experts))}" for name, experts in sorted(found.items()))
    return (
        f"{number} of {layer.num_experts} {units} specialise: they take a class of tokens at least {SPECIALISED} times "
        f"as often as independence would give ({named or 'none'})."
    )


def class_section(layer: LayerRouting, class_of: Callable[[int], str]) -> Section:
    """One row for each class of tokens: which experts or routed heads its tokens choose."""
    unit = layer.unit
    table = Table(
        "classes",
        f"{unit.capitalize()}s chosen per class",
        [
            Column("class", "class"),
            Column("choices", "choices", kind="int", priority=0),
            Column(
                "chosen",
                f"{unit} (share of the class's choices in %), the most chosen first",
                priority=0,
                wraps=24,
            ),
        ],
    )
    by_class = _by_class(layer, class_of)
    rows = []
    for name in sorted({name for counts in by_class for name in counts}):
        counts = {expert: found[name] for expert, found in enumerate(by_class, layer.num_shared) if found[name]}
        order = sorted(counts, key=lambda expert: (-counts[expert], expert))
        percent = {expert: float(100 * Fraction(counts[expert], sum(counts.values()))) for expert in order}
        chosen = "  ".join(f"{expert} ({share:.1f})" for expert, share in percent.items())
        record = {"class": name, "choices": sum(counts.values()), f"by_{unit}": {e: counts[e] for e in order}}
        rows.append(Row({"class": name, "choices": sum(counts.values()), "chosen": chosen}, records=[record]))
    return Section(table, rows)


def runs_section(name: str, outcomes: Sequence[Outcome]) -> Section:
    """One row for each run of an example, in the form of Table 7, and what follows from them in words."""
    example = EXAMPLES[name]
    table = Table(
        "runs",
        example.title,
        [
            Column("label", "coefficients"),
            Column("loss", "task loss\n(nats)", kind="fixed", digits=3),
            Column("accuracy", "accuracy", **PERCENT),
            Column("largest", "largest\nshare", **PERCENT, priority=0),
            Column("smallest", "smallest\nshare", **PERCENT, priority=0),
            *(Column(loss, loss, kind="fixed", digits=3) for loss in example.weights),
        ],
        notes_above=[
            f"{example.about} Here: task loss and spread of the load of a small model on a made-up task with "
            f"{task.CLASSES} classes of tokens, {example.steps} steps, seed {task.SEED}, {_sizes(outcomes[0].layer)}, "
            "on held-out sequences. Losses without their coefficients."
        ],
    )
    return Section(table, [_run_row(one) for one in outcomes], statement(outcomes))


def _sizes(layer: LayerRouting) -> str:
    sizes = {"K": layer.top_k, "E": layer.num_experts, "s": layer.num_shared, "r": layer.top_k}
    sizes["h"] = layer.num_shared + layer.num_experts
    return ", ".join(f"{letter} = {sizes[letter]}" for letter in layer.routed.sizes)


def _run_row(outcome: Outcome) -> Row:
    percent = [100 * share for share in outcome.layer.shares]
    values = {
        "label": label(outcome.coefficients),
        "loss": outcome.loss,
        "accuracy": 100 * outcome.accuracy,
        "largest": max(percent),
        "smallest": min(percent),
        **outcome.auxiliary,
    }
    record = {"coefficients": dict(outcome.coefficients), "loss": outcome.loss, "accuracy": outcome.accuracy}
    record |= {"auxiliary_losses": dict(outcome.auxiliary), "tokens_per_expert": outcome.layer.counts}
    return Row(values, records=[record])


def log_section(log: Sequence[tuple[int, dict[str, list[int]]]]) -> Section:
    """Largest and smallest share of each layer as training went on."""
    table = Table(
        "balance",
        "Balance over training steps",
        [
            Column("step", "step", kind="int"),
            Column("layer", "layer", priority=0),
            Column("largest", "largest\nshare", **PERCENT, priority=0),
            Column("smallest", "smallest\nshare", **PERCENT, priority=0),
        ],
    )
    rows = []
    for step, layers in log:
        for path, counts in layers.items():
            percent = [100 * share for share in shares(counts)]
            values = {"step": step, "layer": path, "largest": max(percent), "smallest": min(percent)}
            rows.append(Row(values, records=[{"step": step, "layer": path, "tokens_per_expert": counts}]))
    return Section(table, rows)
