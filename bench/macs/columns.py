"""Tables of the accounts in bench/memory.py: columns beside others, or a table of presets. Importable without torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from headcount.bench.accounts import ACCOUNTS, CACHE_ELEMENT_BYTES, Account, Assumptions, Subject, values
from headcount.bench.case import describe_input, ideal_form
from headcount.bench.render import Row, Section
from headcount.bench.table import Column, Table

IDEAL = "_ideal"
"""What the key of a column ends in that is of the form which skips unselected heads."""


def statement(names: Sequence[str], given: Assumptions) -> str:
    """What the columns called ``names`` assume, in words."""
    context = f"{given.context}" if given.context else "as many as the input has"
    steps = f"{given.generate}" if given.generate else "as many as the context"
    of_columns = {
        ("kv_bytes", "decode", "generate"): f"Context: tokens stored after a decode step, {context}.",
        ("generate",): f"Generated tokens, into an empty cache: {steps}.",
        ("decode_b", "decode_i", "generate_b"): "Bytes of a step: used weights once, stored keys and values that are "
        "read once, new ones once; of routed experts and heads as many different ones as tokens can select.",
        ("forward",): "Least bytes of a forward pass: used weights once and, of a layer, input and output once; a "
        "training step has three times its MACs and bytes.",
        ("training",): "Training: forward and backward, no optimiser.",
        ("peak",): "Peak bytes: what the reference layer allocates, as executed.",
    }
    parts = [text for starts, text in of_columns.items() if any(name.startswith(starts) for name in names)]
    elements = f"{given.element_bytes} bytes per element"
    if any(name.startswith("kv_") for name in names):
        elements += f", {CACHE_ELEMENT_BYTES} in the columns of a cache"
    return " ".join([f"{elements}.", *parts])


SKIPPING = (
    "Ideal: nothing computed or read of a head for a token that does not select it; keys and values of all heads are "
    "stored in both forms. Its peak bytes are of the reference, which gathers weights, keys and values for each row."
)


def extended(
    section: Section,
    names: Sequence[str],
    given: Assumptions,
    subject_of: Callable[[Row], tuple[Any, Mapping[str, int]]],
    ideal: bool = False,
) -> Section:
    """``section`` with columns before its last; ``subject_of`` gives a row's configuration and input lengths.

    With ``ideal``, what skipping unselected heads changes stands beside it. Notes say why a cell has a dash.
    """
    table = section.table
    asked = [column for name in names for column in _columns(ACCOUNTS[name], ideal)]
    columns = [*table.columns[:-1], *asked, table.columns[-1]]
    notes = [*table.notes_above, statement(names, given), *([SKIPPING] if ideal else [])]

    def rows() -> Iterator[Row]:
        for row in section.rows:
            config, lengths = subject_of(row)
            found, missing = values(names, Subject(config, lengths, given))
            if ideal:
                of_ideal, not_ideal = _ideal(names, config, lengths, given)
                found, missing = {**found, **of_ideal}, {**missing, **not_ideal}
            records = [{**record, **_plain(found), "missing": missing} for record in row.records]
            yield Row({**row.values, **found}, [*row.notes, *_reasons(missing)], records, row.failures)

    layout = Table(table.name, table.title, columns, notes, table.note_column)
    return Section(layout, rows(), section.below, section.facts)


def _columns(account: Account, ideal: bool) -> list[Column]:
    column = account.column
    if not (ideal and account.of_heads):
        return [column]
    return [column, replace(column, key=column.key + IDEAL, head=f"{column.head}\nideal")]


def _ideal(names, config, lengths, given) -> tuple[dict[str, Any], dict[str, str]]:
    names, form = [name for name in names if ACCOUNTS[name].of_heads], ideal_form(config)
    if form is None:
        found, missing = dict.fromkeys(names), dict.fromkeys(names, "every head is used")
    else:
        found, missing = values(names, Subject(form, lengths, given))
    return tuple({name + IDEAL: value for name, value in part.items()} for part in (found, missing))


def _reasons(missing: Mapping[str, str]) -> list[str]:
    """Why values are missing: a line for each reason, with the columns that it is the reason for."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    return [f"no {', '.join(names)}: {reason}." for reason, names in by_reason.items()]


def section_of(subjects: Mapping[str, Subject], heading: str, names: Sequence[str], given: Assumptions) -> Section:
    """Presets by name, a row each, and one more for the ideal form of a model that has one."""
    inputs: dict[str, list[str]] = {}
    for name, subject in subjects.items():
        inputs.setdefault(describe_input(subject.lengths), []).append(name)
    ideals = {name: ideal_form(subject.config) for name, subject in subjects.items()}
    rows = []
    for name, subject in subjects.items():
        rows.append(_row(name, name, None, names, subject))
        if (ideal := ideals[name]) not in (None, subject.config):
            rows.append(_row(f"{name}, ideal", name, "ideal", names, replace(subject, config=ideal)))
    # room for a mark
    width = max(len(row.values["row"]) for row in rows) + 4
    table = Table(
        "memory",
        f"{heading}: memory and decoding",
        [Column("row", "preset", width=width), *(ACCOUNTS[column].column for column in names)],
        notes_above=[
            *(f"Input of {', '.join(those)}: {lengths}." for lengths, those in inputs.items()),
            statement(names, given),
            *([SKIPPING] if any(ideals.values()) else []),
        ],
        note_column="row",
    )
    return Section(table, rows)


def _row(label: str, preset: str, form: str | None, names: Sequence[str], subject: Subject) -> Row:
    found, missing = values(names, subject)
    record = {"preset": preset, "form": form, "input": dict(subject.lengths), **_plain(found)}
    return Row({"row": label, **found}, _reasons(missing), [{**record, "missing": missing}])


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Values for JSON, which knows no fractions."""
    return {name: float(value) if isinstance(value, Fraction) else value for name, value in found.items()}
