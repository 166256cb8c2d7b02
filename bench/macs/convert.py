"""Convert a dense preset to mixture-of-head attention: cost of each form, break-even length, cost of training.

Importable without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from headcount.bench.case import Case, describe_input
from headcount.bench.errors import UsageError
from headcount.bench.table import Column, Row, Section, Table, macs_column, params_column
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


def sections(case: Case, options: Mapping[str, Any]) -> list[Section]:
    """Return the forms of ``case`` converted with the arguments ``options``, and the stages of its training.

    Raises ConfigError for heads that do not exist.
    """
    released = replace(case, config=convert_config(case.config, **options))
    forms = {"dense": case, "released": released, "ideal": released.ideal}
    # the paper's stages are of a model that reads one sequence of tokens
    return [_forms(forms), *([_stages(forms)] if "seq_len" in case.lengths else [])]


def _forms(forms: Mapping[str, Case]) -> Section:
    dense = forms["dense"]
    columns = [
        Column("form", "form"),
        macs_column("macs", "MACs", priority=0),
        Column("share", "of dense", unit="%", kind="fixed", digits=2, priority=0),
        macs_column("training_macs", "training step\nMACs"),
        params_column("params", "params"),
    ]
    note = (
        f"Input: {describe_input(dense.lengths)}. Released: every head computed, then gated. Ideal: no head "
        "computed for a token that does not use it. Closed forms; no tensor of the dense model changes."
    )
    rows = []
    for form, case in forms.items():
        values = {
            "form": form,
            "macs": case.ledger.macs,
            "share": Fraction(100 * case.ledger.macs, dense.ledger.macs),
            "training_macs": training_macs(case.ledger),
            "params": case.ledger.params,
        }
        record = {**values, "share": float(values["share"]), "preset": dense.preset, "input": dict(dense.lengths)}
        rows.append(Row(values, records=[record]))
    table = Table("conversion", f"{dense.name} as mixture-of-head attention", columns, [note])
    return Section(table, rows, [_break_even(dense, forms["ideal"])])


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


def _stages(forms: Mapping[str, Case]) -> Section:
    """Return the costs of the paper's two stages."""
    dense = forms["dense"]
    tokens = dense.lengths["seq_len"] * dense.lengths["batch_size"]
    columns = [
        Column("stage", "stage", kind="int"),
        Column("what", "model"),
        Column("form", "form", priority=0),
        Column("tokens", "tokens", kind="int", of="tokens"),
        macs_column("macs", "training\nMACs", priority=0),
    ]
    rows = []
    for form, case in forms.items():
        number = 1 if form == "dense" else 2
        trained, what = STAGES[number - 1]
        # everything that costs is done once for each token
        macs = trained * training_macs(case.ledger) // tokens
        values = {"stage": number, "what": what, "form": form, "tokens": trained, "macs": macs}
        rows.append(Row(values, records=[{**values, "preset": dense.preset}]))
    saved = Fraction(dense.ledger.macs - forms["ideal"].ledger.macs, tokens)
    if saved > 0:
        repaid = " or ".join(f"{ceil(row.values['macs'] / saved):,} ({row.values['form']})" for row in rows[1:])
        below = f"What ideal saves in forward passes repays the second stage after {repaid} tokens of this length."
    else:
        below = "Ideal saves nothing that could repay the second stage."
    return Section(Table("stages", f"{dense.name}: training on", columns, [STAGES_ABOUT]), rows, [below])
