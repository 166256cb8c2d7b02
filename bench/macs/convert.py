"""Convert a dense preset to mixture-of-head attention: cost of each form, break-even length, cost of training.

Importable without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from headcount.bench.case import Case, describe_input
from headcount.bench.column import Column, macs_column, params_column
from headcount.bench.errors import UsageError
from headcount.bench.result import Row, Table, columns_of, format_macs, shown
from headcount.formulas.backward import training_macs
from headcount.formulas.symbols import symbol
from headcount.models.configs.convert import convert_config
from headcount.models.configs.numbers import parse_int

STAGES = ((300 * 10**9, "dense, trained on"), (100 * 10**9, "as MoH"))
"""Tokens of the two stages of the MoH paper (section 4.4), and the model trained in each."""
STAGES_ABOUT = (
    "The two stages of the MoH paper (arXiv 2410.11842, section 4.4) in tokens of this length: forward and backward, "
    "no optimiser. Its first stage also grew the vocabulary to 160,896 (--set vocab_size=160896) and took sequences of "
    "8,192 tokens."
)
NAMES = {"s": "shared", "r": "routed", "router": "router"}
"""The argument of ``convert_config`` for each word."""


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``convert_config`` for ``s=16 r=8 router=linear``. Raises UsageError for others."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            values = [value] if name == "router" and value else list(map(parse_int, value.split(",")))
            found[NAMES[name]] = values[0] if len(values) == 1 else tuple(values)
        except (KeyError, ValueError):
            form = "s=N r=N, N for all layers or N,N,… for each, and router=NAME"
            raise UsageError(f"malformed {word!r}; a conversion takes {form}") from None
    missing = [f"{letter}=N" for letter in ("s", "r") if NAMES[letter] not in found]
    if missing:
        raise UsageError(f"a conversion needs {' and '.join(missing)}")
    return found


@dataclass(frozen=True)
class FormRow(Row):
    """The cost of a form of the model, ``share`` in percent of the dense one."""

    preset: str
    input: Mapping[str, int]
    form: str = shown(Column, "form")
    macs: int = shown(macs_column, "MACs", priority=0)
    share: Fraction = shown(Column, "of dense", unit="%", kind="fixed", digits=2, priority=0)
    training_macs: int = shown(macs_column, "training step\nMACs")
    params: int = shown(params_column, "params")


@dataclass(frozen=True)
class StageRow(Row):
    """The cost of a stage of the MoH paper's training, of ``tokens`` tokens."""

    preset: str
    stage: int = shown(Column, "stage", kind="int")
    what: str = shown(Column, "model")
    form: str = shown(Column, "form", priority=0)
    tokens: int = shown(Column, "tokens", kind="int", of="tokens")
    macs: int = shown(macs_column, "training\nMACs", priority=0)


@dataclass(frozen=True)
class Conversion:
    """A dense model, its forms as mixture-of-head attention, and the length from which on the ideal form pays."""

    dense: Case
    forms: Mapping[str, Case]
    rows: Sequence[FormRow]
    break_even: str

    @property
    def ideal(self) -> FormRow:
        """The row of the ideal form."""
        return self.rows[-1]


def convert(dense: Case, options: Mapping[str, Any]) -> Conversion:
    """Return ``dense`` converted with the arguments ``options``. Raises ConfigError for heads that do not exist."""
    released = replace(dense, config=convert_config(dense.config, **options))
    forms = {"dense": dense, "released": released, "ideal": released.ideal}
    rows = [
        FormRow(
            preset=dense.preset,
            input=dict(dense.lengths),
            form=form,
            macs=case.ledger.macs,
            share=Fraction(100 * case.ledger.macs, dense.ledger.macs),
            training_macs=training_macs(case.ledger),
            params=case.ledger.params,
        )
        for form, case in forms.items()
    ]
    return Conversion(dense, forms, rows, _break_even(dense, released.ideal))


def tables(found: Conversion) -> list[Table]:
    """Return the forms, and the stages of training of a model that reads one sequence of tokens, as the paper's do."""
    dense = found.dense
    note = (
        f"Input: {describe_input(dense.lengths)}. Released: every head computed, then gated. Ideal: no head "
        "computed for a token that does not use it. Closed forms; no tensor of the dense model changes."
    )
    title = f"{dense.name} as mixture-of-head attention"
    forms = Table("conversion", title, columns_of(FormRow), found.rows, [note], [found.break_even])
    return [forms, _stages(found)] if "seq_len" in dense.lengths else [forms]


def sentence(found: Sequence[Conversion], in_flops: bool) -> str:
    """Return the cost of the first ideal form relative to the dense model."""
    ideal = found[0].ideal
    cost = format_macs(ideal.macs, in_flops)
    return f"Ideal: {cost}, {float(ideal.share):.2f} % of dense. {found[0].break_even}"


def _break_even(dense: Case, ideal: Case) -> str:
    """Return the length from which on the ideal form computes less, in words."""
    from headcount.bench.macs.crossover import crossovers

    def less(condition: Any) -> str:
        return "less than dense" if condition else "no less than dense"

    if "T" not in dense.letters() or "T" in dense.config.fields_by_letter:
        here = less(ideal.ledger.macs < dense.ledger.macs)
        return f"Break-even: none in its length, which is the model's own; here ideal computes {here}."
    T = symbol("T")
    difference = ideal.ledger_in("T", T).macs - dense.ledger_in("T", T).macs
    found = crossovers(difference, T)
    if not found:
        return f"Break-even: none; ideal computes {less(difference.subs(T, 1) < 0)} at every length."
    # where both are equal at an integer the sign changes on either side of it
    last = found[-1]
    return f"Break-even: ideal computes {less(last.at_above < 0)} from {last.above:,} tokens on."


def _stages(found: Conversion) -> Table[StageRow]:
    """Return the costs of the paper's two stages."""
    dense = found.dense
    tokens = dense.lengths["seq_len"] * dense.lengths["batch_size"]
    rows = []
    for form, case in found.forms.items():
        number = 1 if form == "dense" else 2
        trained, what = STAGES[number - 1]
        # everything that costs is done once for each token
        macs = trained * training_macs(case.ledger) // tokens
        rows.append(StageRow(dense.preset, number, what, form, trained, macs))
    saved = Fraction(dense.ledger.macs - found.ideal.macs, tokens)
    if saved > 0:
        repaid = " or ".join(f"{ceil(row.macs / saved):,} ({row.form})" for row in rows[1:])
        below = f"What ideal saves in forward passes repays the second stage after {repaid} tokens of this length."
    else:
        below = "Ideal saves nothing that could repay the second stage."
    return Table("stages", f"{dense.name}: training on", columns_of(StageRow), rows, [STAGES_ABOUT], [below])
