"""Tables of bench.routing: shares per layer, experts or heads with their tokens, example runs, balance over steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from operator import attrgetter

from headcount.bench.column import Column, macs_column
from headcount.bench.result import Row, Table, columns_of, shown
from headcount.bench.routing import example
from headcount.bench.routing.stats import LayerRouting, group_tokens, percent, top_tokens
from headcount.bench.variants.variant import Routed

percent_column = partial(Column, unit="%", kind="fixed", digits=2)


@dataclass(frozen=True)
class LayerRow(Row):
    """A routed layer.

    Attributes:
        layer: its path.
        tokens: tokens of the input.
        routed, shared: numbers of routed and of shared experts or heads.
        largest, smallest: shares of choices that a routed one gets, in percent.
        sorted: all shares, the largest first.
        top_k: number of choices of a token.
        tokens_per_expert: choices of each routed one.
    """

    layer: str
    tokens: int
    routed: int
    shared: int
    largest: Fraction
    smallest: Fraction
    sorted: str
    top_k: int
    tokens_per_expert: Sequence[int]


@dataclass(frozen=True)
class ExpertRow(Row):
    """An expert or a head of a routed layer, in closed form what it computes.

    Attributes:
        layer: path of the layer.
        number: its number among the shared ones, which come first, and the routed ones.
        shared: whether every token uses it.
        count: tokens that use it.
        share: their share of choices in percent; None of a shared one.
        macs: multiply-accumulates executed for these tokens; of a head, in the ideal form.
        released_macs: multiply-accumulates where it is computed for every token.
        token_class, class_pmi: the class of tokens with the highest PMI; None where tokens have no classes.
        tokens: tokens of the highest PMI as text; None where there are none.
        top_tokens: the same, each with its PMI.
    """

    layer: str
    number: int
    shared: bool
    count: int
    share: Fraction | None
    macs: int
    released_macs: int
    token_class: str | None = None
    class_pmi: Fraction | None = None
    tokens: str | None = None
    top_tokens: Sequence[tuple[int, Fraction]] = ()


@dataclass(frozen=True)
class RunRow(Row):
    """A training run of the example; losses are without their coefficients."""

    coefficients: Mapping[str, float]
    auxiliary_losses: Mapping[str, float]
    tokens_per_expert: Sequence[int]
    label: str = shown(Column, "coefficients")
    loss: float = shown(Column, "task loss\n(nats)", kind="fixed", digits=3)
    accuracy: float = shown(percent_column, "accuracy", value=attrgetter("accuracy_percent"))
    largest: Fraction = shown(percent_column, "largest\nshare", priority=0)
    smallest: Fraction = shown(percent_column, "smallest\nshare", priority=0)

    @property
    def accuracy_percent(self) -> float:
        """The accuracy in percent."""
        return 100 * self.accuracy


@dataclass(frozen=True)
class BalanceRow(Row):
    """The shares of a layer at a training step, in percent."""

    tokens_per_expert: Sequence[int]
    step: int = shown(Column, "step", kind="int")
    layer: str = shown(Column, "layer", priority=0)
    largest: Fraction = shown(percent_column, "largest\nshare", priority=0)
    smallest: Fraction = shown(percent_column, "smallest\nshare", priority=0)


def by_unit(layers: Sequence[LayerRouting]) -> list[list[LayerRouting]]:
    """Return the layers grouped by what their tokens choose: heads, or experts."""
    units = dict.fromkeys(layer.routed.unit for layer in layers)
    return [[layer for layer in layers if layer.routed.unit == unit] for unit in units]


def layer_table(layers: Sequence[LayerRouting], name: str = "routing") -> Table[LayerRow]:
    """Return a row for each routed layer: its experts' shares, sorted (Figures 3-4 of the MoA paper)."""
    routed = layers[0].routed
    columns = [
        Column("layer", "layer"),
        Column("tokens", "tokens", kind="int", priority=2),
        Column("routed", f"routed\n{routed.unit}s", kind="int", priority=2),
        Column("shared", f"shared\n{routed.unit}s", kind="int", priority=2),
        percent_column("largest", "largest\nshare", priority=0),
        percent_column("smallest", "smallest\nshare", priority=0),
        Column("sorted", "shares in %, sorted", wraps=24),
    ]
    rows = []
    for layer in layers:
        shares = percent(layer.counts)
        rows.append(
            LayerRow(
                layer.path,
                layer.tokens,
                layer.num_experts,
                layer.num_shared,
                largest=max(shares),
                smallest=min(shares),
                sorted=" ".join(f"{share:.1f}" for share in layer.sorted_percent),
                top_k=layer.top_k,
                tokens_per_expert=layer.counts,
            )
        )
    return Table(name, f"Shares of tokens per {routed.unit}", columns, rows, [routed.shares])


def expert_table(
    layers: Sequence[LayerRouting],
    top: int,
    min_count: int,
    name_of: Callable[[int], str] = str,
    class_of: Callable[[int], str] | None = None,
) -> Table[ExpertRow]:
    """Return a row for each expert or head, the most used first: share, MACs, tokens of highest PMI (Table 4).

    ``class_of`` adds the class of tokens with the highest PMI.
    """
    routed, unit = layers[0].routed, layers[0].routed.unit
    columns = [
        Column("layer", "layer"),
        Column("number", unit, kind="int", priority=0),
        Column("count", "tokens", kind="int"),
        percent_column("share", "share", priority=0),
        macs_column("macs", "MACs\nideal" if routed.released else "executed\nMACs", priority=2),
    ]
    if routed.released:
        columns.append(macs_column("released_macs", "MACs\nas released", priority=4))
    if class_of:
        columns.append(Column("token_class", "class of\nhighest PMI"))
        columns.append(Column("class_pmi", "PMI of\nthe class", kind="fixed", digits=2, priority=3))
    head = f"tokens of highest PMI,\nof those with at least\n{min_count} choices"
    columns.append(Column("tokens", head, wraps=24))
    notes = [
        f"PMI is p(token, {unit}) / (p(token) p({unit})), as in Table 4 of arXiv 2210.05144.",
        *dict.fromkeys(layer.routed.executed for layer in layers),
    ]
    rows = [list(_expert_rows(layer, top, min_count, name_of, class_of)) for layer in layers]
    below = [_specialists(routed, same) for same in rows] if class_of else []
    title = f"{unit.capitalize()}s and their tokens"
    return Table(f"{unit}s", title, columns, list(chain.from_iterable(rows)), notes, below)


def _expert_rows(
    layer: LayerRouting,
    top: int,
    min_count: int,
    name_of: Callable[[int], str],
    class_of: Callable[[int], str] | None,
) -> Iterator[ExpertRow]:
    every = layer.every_token_macs.numerator
    for head in range(layer.num_shared):
        text = "shared: every token uses it"
        yield ExpertRow(layer.path, head, True, layer.tokens, None, every, every, tokens=text)
    best = top_tokens(layer.chosen, top, min_count)
    by_class = top_tokens(group_tokens(layer.chosen, class_of), 1) if class_of else [[]] * layer.num_experts
    counts, shares = layer.counts, percent(layer.counts)
    for expert in sorted(range(layer.num_experts), key=lambda expert: (-counts[expert], expert)):
        # an expert without a token has no class
        token_class, class_pmi = next(iter(by_class[expert]), (None, None))
        yield ExpertRow(
            layer.path,
            layer.num_shared + expert,
            False,
            counts[expert],
            shares[expert],
            layer.expert_macs[expert].numerator,
            every,
            token_class,
            class_pmi,
            tokens=" ".join(f"{name_of(token)} ({float(pmi):.1f})" for token, pmi in best[expert]) or None,
            top_tokens=best[expert],
        )


SPECIALISED = 1.5
"""Least PMI of a class with an expert that specialises in it."""


def _specialists(routed: Routed, rows: Sequence[ExpertRow]) -> str:
    by_class: dict[str, list[int]] = {}
    for row in sorted(rows, key=attrgetter("number")):
        if row.token_class and row.class_pmi and row.class_pmi >= SPECIALISED:
            by_class.setdefault(row.token_class, []).append(row.number)
    named = "; ".join(f"{name}: {', '.join(map(str, numbers))}" for name, numbers in sorted(by_class.items()))
    return (
        f"{sum(map(len, by_class.values()))} of {len(rows)} {routed.units} specialise: they take a class of "
        f"tokens at least {SPECIALISED} times as often as independence would give ({named or 'none'})."
    )


def runs_table(outcomes: Sequence[example.Outcome]) -> Table[RunRow]:
    """Return a row for each run of the example, in the form of Table 7."""
    layer = outcomes[0].layer
    columns = columns_of(RunRow)
    for name in example.PAPER:
        columns.append(Column(name, name, kind="fixed", digits=3, value=partial(_auxiliary_loss, name)))
    about = (
        "Table 7 of arXiv 2210.05144 gives BLEU of translation models. Here: task loss and spread of the load of a "
        f"small model on a made-up task with {example.CLASSES} classes of tokens, {example.STEPS} steps, seed "
        f"{example.SEED}, K = {layer.top_k}, E = {layer.num_experts}, on held-out sequences. Losses without their "
        "coefficients."
    )
    rows = []
    for outcome in outcomes:
        shares = percent(outcome.layer.counts)
        rows.append(
            RunRow(
                outcome.coefficients,
                outcome.auxiliary,
                outcome.layer.counts,
                example.label(outcome.coefficients),
                outcome.loss,
                outcome.accuracy,
                largest=max(shares),
                smallest=min(shares),
            )
        )
    return Table("runs", "L_a and L_z in the form of Table 7", columns, rows, [about])


def _auxiliary_loss(name: str, row: RunRow) -> float:
    return row.auxiliary_losses[name]


def balance_table(log: example.Log) -> Table[BalanceRow]:
    """Return the largest and smallest share of each layer at each logged training step."""
    rows = []
    for step, layers in log:
        for path, counts in layers.items():
            shares = percent(counts)
            rows.append(BalanceRow(counts, step, path, largest=max(shares), smallest=min(shares)))
    return Table("balance", "Balance over training steps", columns_of(BalanceRow), rows)
