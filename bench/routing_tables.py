"""The tables of bench.routing: shares per layer, experts with their tokens, coefficient pairs, balance over steps."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from bench.routing_stats import LayerRouting, grouped, pmi, shares, top_tokens
from bench.sections import Row, Section
from bench.table import Column, Table

PERCENT = {"unit": "%", "kind": "fixed", "digits": 2}


def layer_section(layers: Sequence[LayerRouting]) -> Section:
    """One row for each routed layer: its experts' shares, sorted (Figures 3-4)."""
    table = Table(
        "routing",
        "Shares of tokens per expert",
        [
            Column("layer", "layer", width=32),
            Column("tokens", "tokens", kind="int", width=8),
            Column("largest", "largest\nshare", **PERCENT),
            Column("smallest", "smallest\nshare", **PERCENT),
            Column("sorted", "shares in %, sorted", width=40),
        ],
        notes_above=[
            "A share is an expert's part of all choices of its layer; every token makes K of them. Balanced is 100 / E."
        ],
    )
    return Section(table, [_layer_row(layer) for layer in layers])


def _layer_row(layer: LayerRouting) -> Row:
    percent = sorted((100 * share for share in layer.shares), reverse=True)
    values = {
        "layer": layer.path,
        "tokens": layer.tokens,
        "largest": percent[0],
        "smallest": percent[-1],
        "sorted": " ".join(f"{float(value):.1f}" for value in percent),
    }
    record = {"layer": layer.path, "tokens": layer.tokens, "top_k": layer.top_k, "tokens_per_expert": layer.counts}
    return Row(values, records=[record])


def expert_section(
    layers: Sequence[LayerRouting],
    top: int,
    least: int,
    name_of: Callable[[int], str] = str,
    class_of: Callable[[int], str] | None = None,
) -> Section:
    """One row for each expert, the most used first: its share, its MACs, the tokens of highest PMI (Table 4).

    With ``class_of`` also the class of tokens that it is for, by PMI.
    """
    classes = [
        Column("class", "class of\nhighest PMI"),
        Column("class_pmi", "PMI of\nthe class", kind="fixed", digits=2),
    ]
    table = Table(
        "experts",
        "Experts and their tokens",
        [
            Column("layer", "layer", width=32),
            Column("expert", "expert", kind="int"),
            Column("count", "tokens", kind="int", width=8),
            Column("share", "share", **PERCENT),
            Column("macs", "executed\nMACs", kind="int", width=13),
            *(classes if class_of else []),
            Column("tokens", "tokens of highest PMI", width=40),
        ],
        notes_above=[
            "PMI is p(token, expert) / (p(token) p(expert)), as in Table 4 of arXiv 2210.05144; tokens with at least "
            f"{least} choices. MACs: the query and output projection and the core of the tokens that chose the expert."
        ],
    )
    rows = [row for layer in layers for row in _expert_rows(layer, top, least, name_of, class_of)]
    below = [_specialists(layer, class_of) for layer in layers] if class_of else []
    return Section(table, rows, below)


def _expert_rows(layer, top, least, name_of, class_of):
    best = top_tokens(layer.chosen, top, least)
    by_class = _classes(layer, class_of) if class_of else [(None, None)] * layer.num_experts
    order = sorted(range(layer.num_experts), key=lambda expert: (-layer.counts[expert], expert))
    for expert in order:
        macs = layer.expert_macs[expert]
        values = {
            "layer": layer.path,
            "expert": expert,
            "count": layer.counts[expert],
            "share": 100 * layer.shares[expert],
            "macs": macs.numerator,
            "class": by_class[expert][0],
            "class_pmi": by_class[expert][1],
            "tokens": " ".join(f"{name_of(token)} ({float(value):.1f})" for token, value in best[expert]) or None,
        }
        record = {key: values[key] for key in ("layer", "expert", "count", "macs", "class")}
        record["top_tokens"] = [[token, float(value)] for token, value in best[expert]]
        yield Row(values, records=[record])


def _classes(layer: LayerRouting, class_of) -> list[tuple[str | None, Fraction | None]]:
    """Each expert's class of highest PMI; None for an expert without a token."""
    tokens = {token for counts in layer.chosen for token in counts}
    values = pmi(grouped(layer.chosen, {token: class_of(token) for token in tokens}))
    return [max(found.items(), key=lambda pair: (pair[1], pair[0])) if found else (None, None) for found in values]


SPECIALISED = 1.5
"""An expert is for a class that it takes at least so many times as often as independence would give."""


def _specialists(layer: LayerRouting, class_of) -> str:
    found: dict[str, list[int]] = {}
    for expert, (name, value) in enumerate(_classes(layer, class_of)):
        if value is not None and value >= SPECIALISED:
            found.setdefault(name, []).append(expert)
    number = sum(map(len, found.values()))
    named = "; ".join(f"{name}: {', '.join(map(str, experts))}" for name, experts in sorted(found.items()))
    return (
        f"{number} of {layer.num_experts} experts specialise: they take a class of tokens at least {SPECIALISED} times "
        f"as often as independence would give ({named or 'none'})."
    )


def pair_section(outcomes: Sequence[Any]) -> Section:
    """One row for each coefficient pair, in the form of Table 7, and what follows from them in words."""
    from bench import routing_example as example

    table = Table(
        "pairs",
        "L_a and L_z in the form of Table 7",
        [
            Column("pair", "coefficients", width=22),
            Column("loss", "task loss\n(nats)", kind="fixed", digits=3),
            Column("accuracy", "accuracy", **PERCENT),
            Column("largest", "largest\nshare", **PERCENT),
            Column("smallest", "smallest\nshare", **PERCENT),
            Column("balance_loss", "L_a", kind="fixed", digits=3, width=6),
            Column("z_loss", "L_z", kind="fixed", digits=3, width=6),
        ],
        notes_above=[
            "Table 7 of arXiv 2210.05144 gives BLEU of translation models. Here: task loss and spread of the load of a "
            f"small model on a made-up task with {example.CLASSES} classes of tokens, {example.STEPS} steps, seed "
            f"{example.SEED}, K = {example.TOP_K}, E = {example.NUM_EXPERTS}, on held-out sequences."
        ],
    )
    return Section(table, [_pair_row(one, example.pair) for one in outcomes], example.statement(list(outcomes)))


def _pair_row(outcome, pair) -> Row:
    percent = [100 * share for share in outcome.layer.shares]
    values = {
        "pair": pair(outcome.alpha, outcome.beta),
        "loss": outcome.loss,
        "accuracy": 100 * outcome.accuracy,
        "largest": max(percent),
        "smallest": min(percent),
        "balance_loss": outcome.balance_loss,
        "z_loss": outcome.z_loss,
    }
    record = {"alpha": outcome.alpha, "beta": outcome.beta, "tokens_per_expert": outcome.layer.counts}
    record |= {key: values[key] for key in ("loss", "balance_loss", "z_loss")} | {"accuracy": outcome.accuracy}
    return Row(values, records=[record])


def log_section(log: Sequence[tuple[int, dict[str, list[int]]]]) -> Section:
    """Largest and smallest share of each layer as training went on."""
    table = Table(
        "balance",
        "Balance over training steps",
        [
            Column("step", "step", kind="int", width=8),
            Column("layer", "layer", width=32),
            Column("largest", "largest\nshare", **PERCENT),
            Column("smallest", "smallest\nshare", **PERCENT),
        ],
    )
    rows = []
    for step, layers in log:
        for path, counts in layers.items():
            percent = [100 * share for share in shares(counts)]
            values = {"step": step, "layer": path, "largest": max(percent), "smallest": min(percent)}
            rows.append(Row(values, records=[{"step": step, "layer": path, "tokens_per_expert": counts}]))
    return Section(table, rows)
