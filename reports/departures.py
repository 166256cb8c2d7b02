"""Where this departs from the authors' code, with each consequence computed."""

from collections.abc import Callable
from fractions import Fraction
from math import log

from headcount.bench.table import Column
from headcount.formulas.published.departures import Departure, load
from headcount.reports import markdown
from headcount.reports.facts import Facts

BIG, MASKED_LM, LLM = "moa-16K32E256D", "mlm-moa-8K8E128D", "moh-llm-s-75"
ABOUT = (
    "Files are those of yikangshen/MoA and of the released MoH. What changes no number says so by having none in the "
    "last column."
)


def about(facts: Facts) -> str:
    """What the columns hold."""
    return ABOUT


def page(facts: Facts, paper: str) -> str:
    """A table of one paper's."""
    rows = [_row(one, facts) for one in load() if one.paper == paper]
    return markdown.table([Column(k, k) for k in rows[0]], rows)


def _row(one: Departure, facts: Facts) -> dict[str, str | None]:
    return {
        "what": one.what,
        "the authors' code": one.theirs + (f" ({one.file})" if one.file else ""),
        "here": one.ours,
        "why": one.why,
        "field": f"`{one.field}`" if one.field else f"none: {one.no_field}",
        "consequence": CONSEQUENCES[one.consequence](facts) if one.consequence else None,
    }


def even_weights(facts: Facts) -> str:
    """What the selected probabilities add up to where all are alike."""
    layer = facts.config(BIG).attention
    return f"with even probabilities theirs add up to K / E = {layer.top_k / layer.num_experts:.2f} at {BIG}, ours to 1"


def padded_position(facts: Facts) -> str:
    """(log sum exp 0)^2 of a padded position that holds zeros."""
    layer = facts.config(BIG).attention
    square = log(layer.num_experts) ** 2
    return (
        f"a padded position of zeros counts (ln E)^2 = {square:.2f} at E = {layer.num_experts}, with its coefficient "
        f"{layer.z_loss_weight * square:.3f}"
    )


def alpha_per_token(facts: Facts) -> str:
    """The coefficient beside a mean cross-entropy."""
    tokens, weight = facts.data["moa-table6"].entries[0]["tokens"], facts.config(BIG).attention.balance_loss_weight
    return f"beside the mean, {weight:g} acts as {weight:g} / {tokens:,} = {weight / tokens:.1e} at Table 6's tokens"


def noise_offset(facts: Facts) -> str:
    """0.01 against Softplus(0) = ln 2."""
    return f"at x W_noise = 0 the noise is {100 * 0.01 / log(2):.1f} % wider"


def zero_router(facts: Facts) -> str:
    """Every probability at the start."""
    experts = facts.config(BIG).attention.num_experts
    return f"every probability starts at 1 / E = {1 / experts:.3f} at E = {experts}"


def masked_lm_biases(facts: Facts) -> str:
    """Table 2's parameters with and without the attention's biases."""
    table = facts.tables["moa-table2"]
    column = table.column("params")
    (row,) = (row for row in table.rows if row.preset == MASKED_LM)
    with_biases, without = facts.ledger(MASKED_LM).params, facts.changed(MASKED_LM, bias=False).params
    return (
        f"{MASKED_LM}: {with_biases:,} parameters with them, {without:,} without; printed {column.printed(row)}, "
        f"rounded {column.printing.text(with_biases)} and {column.printing.text(without)}"
    )


def batch_tokens(facts: Facts) -> str:
    """Theirs over ours."""
    (theirs,) = (int(one.theirs) for one in load() if one.consequence == "batch_tokens")
    printed = facts.data["moa-table6"].entries[0]["tokens"]
    return f"{float(Fraction(100 * (theirs - printed), printed)):.1f} % more tokens an update"


def admin_vectors(facts: Facts) -> str:
    """Two sublayers in an encoder layer, three in a decoder layer."""
    name = "admin-18L-18L"
    config = facts.config(name)
    size = config.d_model * (2 * config.num_encoder_layers + 3 * config.num_decoder_layers)
    return f"{name}: {size:,} parameters beside {facts.ledger(name).params:,}"


def skipped_heads(facts: Facts) -> str:
    """A whole model in both forms."""
    released, ideal = facts.ledger(LLM).macs, facts.changed(LLM, form="ideal").macs
    return f"{LLM}: {released:,} MACs as released, {ideal:,} ideal"


def even_gates(facts: Facts) -> str:
    """A selected head's gate where all logits are alike."""
    layer = facts.config(LLM).layers[0]
    printed = 1 / (2 * layer.num_routed_heads)
    return f"with even logits a selected head of {LLM} has gate 1 as released, 1 / (2 E) = {printed:.3f} as printed"


def head_balance(facts: Facts) -> str:
    """E times, and a mean in place of a sum."""
    config = facts.config(LLM)
    experts = config.layers[0].num_routed_heads
    return (
        f"{LLM}: E / layers = {experts} / {len(config.layers)} = {experts / len(config.layers):.2f} of the printed sum"
    )


def shared_heads(facts: Facts) -> str:
    """The same active heads, divided otherwise."""
    active = facts.config(LLM).layers[0].num_active_heads
    sizes = [facts.changed(LLM, num_shared_heads=s, top_k=active - s).params for s in range(1, active)]
    printing = facts.tables["moh-llm"].column("params").printing
    return (
        f"{LLM}: {min(sizes):,} to {max(sizes):,} parameters for 1 to {active - 1} shared of {active} active heads; "
        f"all print {' or '.join(sorted({printing.text(size) for size in sizes}))}"
    )


CONSEQUENCES: dict[str, Callable[[Facts], str]] = {
    make.__name__: make
    for make in (
        even_weights, padded_position, alpha_per_token, noise_offset, zero_router, masked_lm_biases, batch_tokens,
        admin_vectors, skipped_heads, even_gates, head_balance, shared_heads,
    )
}  # fmt: skip
