"""A dense preset as mixture-of-head attention: what its forms cost, when that is repaid, and what training on costs.

Importable without torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from headcount.bench.case import Case, describe_input
from headcount.bench.errors import UsageError
from headcount.bench.table import Column, Row, Section, Table
from headcount.formulas.backward import training_macs
from headcount.formulas.symbols import symbol
from headcount.models.configs.convert import Heads, converted
from headcount.models.configs.numbers import whole

STAGES = ((300 * 10**9, "dense, trained on"), (100 * 10**9, "as MoH"))
"""Tokens of the two stages of the MoH paper (section 4.4), and what is trained in each."""
STAGES_ABOUT = (
    "The two stages of the MoH paper (arXiv 2410.11842, section 4.4) in tokens of this length: forward and backward, "
    "no optimiser. Its first stage also grew the vocabulary to 160,896 (--set vocab_size=160896) and took sequences of "
    "8,192 tokens."
)
LETTERS = {"s": "shared", "r": "routed"}


def parse(words: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``converted`` that ``s=16 r=8 router=linear`` stands for. UsageError for anything else."""
    found: dict[str, Any] = {}
    for word in words:
        letter, _, value = word.partition("=")
        if letter == "router" and value:
            found["router"] = value
        elif letter in LETTERS:
            found[LETTERS[letter]] = _heads(word, value)
        else:
            raise UsageError(f"malformed {word!r}; --convert takes s=N r=N and router=NAME")
    missing = [letter for letter, name in LETTERS.items() if name not in found]
    if missing:
        raise UsageError(f"--convert needs {' and '.join(f'{letter}=N' for letter in missing)}")
    return found


def _heads(word: str, text: str) -> Heads:
    try:
        numbers = tuple(map(whole, text.split(",")))
    except ValueError:
        raise UsageError(f"malformed {word!r}; a whole number, or one for each layer with commas") from None
    return numbers[0] if len(numbers) == 1 else numbers


def sections(case: Case, how: Mapping[str, Any]) -> Iterator[Section]:
    """The forms of ``case`` converted as ``how`` says, and the stages of its training. ConfigError, before anything is
    made, for heads that there are not."""
    released = replace(case, config=converted(case.config, **how))
    return iter((_forms(case, released), *_stages(case, released)))


def _forms(dense: Case, released: Case) -> Section:
    ideal = released.ideal
    table = Table(
        "conversion",
        f"{dense.name} as mixture-of-head attention",
        [
            Column("form", "form"),
            Column("macs", "MACs", kind="int", of="MACs", priority=0),
            Column("share", "of dense", unit="%", kind="fixed", digits=2, priority=0),
            Column("training_macs", "training step\nMACs", kind="int", of="MACs"),
            Column("params", "params", kind="int", of="params"),
        ],
        notes_above=[
            f"Input: {describe_input(dense.lengths)}. Released: every head computed, then gated. Ideal: no head "
            "computed for a token that does not use it. Closed forms; no tensor of the dense model changes."
        ],
    )
    rows = []
    for form, case in (("dense", dense), ("released", released), ("ideal", ideal)):
        values = {
            "form": form,
            "macs": case.ledger.macs,
            "share": Fraction(100 * case.ledger.macs, dense.ledger.macs),
            "training_macs": training_macs(case.ledger),
            "params": case.ledger.params,
        }
        record = {**values, "share": float(values["share"]), "preset": dense.preset, "input": dict(dense.lengths)}
        rows.append(Row(values, records=[record]))
    return Section(table, rows, [_turning(dense, ideal)])


def _turning(dense: Case, ideal: Case) -> str:
    """From which length on the ideal form computes less, in words."""
    from headcount.bench.macs.crossover import crossovers

    if "T" not in dense.letters() or "T" in dense.config.fields_by_letter:
        less = ideal.ledger.macs < dense.ledger.macs
        return f"Break-even: none in its length, which is the model's own; here ideal computes {_word(less)}."
    T = symbol("T")
    difference = ideal.ledger_in("T", T).macs - dense.ledger_in("T", T).macs
    found = crossovers(difference, T)
    if not found:
        return f"Break-even: none; ideal computes {_word(difference.subs(T, 1) < 0)} at every length."
    # where both are equal at an integer the sign changes on either side of it
    turn = found[-1]
    return f"Break-even: ideal computes {_word(turn.at_above < 0)} from {turn.above:,} tokens on."


def _word(less: Any) -> str:
    return "less than dense" if less else "no less than dense"


def _stages(dense: Case, released: Case) -> list[Section]:
    """What the paper's two stages cost, of a model that reads one sequence of tokens; no table for any other."""
    if "seq_len" not in dense.lengths:
        return []
    tokens = dense.lengths["seq_len"] * dense.lengths["batch_size"]
    rows = []
    for number, form, case in ((1, "dense", dense), (2, "released", released), (2, "ideal", released.ideal)):
        trained, what = STAGES[number - 1]
        # everything that costs is done once for each token
        macs = trained * training_macs(case.ledger) // tokens
        values = {"stage": number, "what": what, "form": form, "tokens": trained, "macs": macs}
        rows.append(Row(values, records=[{**values, "preset": dense.preset}]))
    table = Table(
        "stages",
        f"{dense.name}: training on",
        [
            Column("stage", "stage", kind="int"),
            Column("what", "model"),
            Column("form", "form", priority=0),
            Column("tokens", "tokens", kind="int", of="tokens"),
            Column("macs", "training\nMACs", kind="int", of="MACs", priority=0),
        ],
        notes_above=[STAGES_ABOUT],
    )
    saved = Fraction(dense.ledger.macs - released.ideal.ledger.macs, tokens)
    if saved <= 0:
        return [Section(table, rows, ["Ideal saves nothing that could repay the second stage."])]
    repaid = " or ".join(f"{ceil(row.values['macs'] / saved):,} ({row.values['form']})" for row in rows[1:])
    below = f"What ideal saves in forward passes repays the second stage after {repaid} tokens of this length."
    return [Section(table, rows, [below])]
