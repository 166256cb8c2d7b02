"""Costs of several targets, at several lengths or sizes: a paper's table and its curves. Importable without torch."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, product
from typing import Any

from headcount.bench.accounts import Assumptions, value_of
from headcount.bench.case import Case
from headcount.bench.closed_form.case import case_of
from headcount.bench.column import Column, plural
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.bench.macs.columns import Accounts, account_column, with_accounts
from headcount.bench.output.figure import figure, label_values
from headcount.bench.output.layout import in_flops as flops_column
from headcount.bench.output.layout import scaled, unit_for
from headcount.bench.output.progress import with_progress
from headcount.bench.result import Row, Table, format_value
from headcount.bench.store import count
from headcount.bench.targets.process import shared_imports
from headcount.bench.targets.target import is_configuration, parse_target
from headcount.bench.targets.user_code import UserCodeError, check_target
from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.targets import has_closed_form

DEFAULT = ("params", "macs", "active_params")
"""Columns where none are asked for."""
CONSTANT = ("params", "active_params")
"""Columns that no length changes."""
RELEASED = "{}: as released, every head is computed; with form=ideal those that a token does not select are left out."
IDEAL = "{}: ideal, heads that a token does not select are left out; the released code computes every head."
"""What a table says of the targets that have an ideal form, and of those that are in it."""


@dataclass(frozen=True)
class SurveyRow(Row):
    """A target at one point.

    Attributes:
        target: its name, else as it was given.
        at: the varied names and their values.
        case: its closed form, or the count of its module.
        accounts: its costs by name.
    """

    target: str
    at: Mapping[str, str]
    case: Case | Count
    accounts: Accounts = Accounts()

    @property
    def notes(self) -> list[str]:
        """The reasons for missing costs."""
        return self.accounts.notes

    def to_json(self) -> dict[str, Any]:
        """Return the target, the point and the costs."""
        return {"target": self.target, "at": dict(self.at), **self.accounts.to_json()}


def vary(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values by name of ``T=128,512`` words. Raises UsageError for anything else and a repeated name."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if not name.isidentifier() or not values or not all(values.split(",")):
            raise UsageError(f"--vary {word!r}: write a letter or a name and its values, as T=128,512")
        if re.search(r"\d *(\.\.|:) *\d", values):
            raise UsageError(f"--vary {word}: write each value, as {name}=128,256,512")
        if name in found:
            raise UsageError(f"--vary has {name} twice; write {name}={','.join([*found[name], values])}")
        found[name] = [_plain(value) for value in values.split(",")]
    return found


def _plain(value: str) -> str:
    """Return a number with a unit as digits, and any other value as it is."""
    try:
        return str(parse_int(value))
    except ValueError:
        return value


@shared_imports()
def table(
    args: argparse.Namespace, varied: Mapping[str, list[str]], given: Assumptions, human: bool
) -> Table[SurveyRow]:
    """Return the costs of each target of ``args`` at each point of ``varied``, as rows.

    Presets, layers and configurations are closed forms, where there is one; other modules run. ``human`` prints large
    integers in M or G.
    """
    names = args.columns or DEFAULT
    rows = list(_rows(args, varied, names, given))
    at = [
        Column(
            name,
            name,
            kind="int" if all(map(str.isdecimal, values)) else "text",
            align="right",
            value=partial(_at, name),
        )
        for name, values in varied.items()
    ]
    head = "model" if args.names else "target"
    first = Column("target", head, code=not args.names, wraps=16)
    title = f"{plural(len(args.target), 'target')}" + (f" by {' and '.join(varied)}" if varied else "")
    above = _notes(rows)
    of_two_forms = [row for row in rows if isinstance(row.case, Case) and row.case.ideal is not None]
    for form, is_ideal in ((RELEASED, False), (IDEAL, True)):
        if named := [row for row in of_two_forms if (row.case.ideal == row.case) == is_ideal]:
            above.append(form.format(_named(named)))
    above += _biases(rows)
    plain = Table("survey", title, [first, *at], rows, above=above, note_column="target")
    found = with_accounts(plain, names, given, with_ideal=False)
    return replace(found, columns=_readable(found.columns, found.rows)) if human else found


def _notes(rows: Sequence[SurveyRow]) -> list[str]:
    """Return the notes of all cases and counts, each once, with the targets that one is of where others lack it."""
    targets = {row.target for row in rows}
    by_note: dict[str, dict[str, None]] = {}
    for row in rows:
        for note in row.case.notes or ():
            by_note.setdefault(note, {})[row.target] = None
    return [note if len(named) == len(targets) else f"{', '.join(named)}: {note}" for note, named in by_note.items()]


def _biases(rows: Sequence[SurveyRow]) -> list[str]:
    """Return which layers have biases where others have none."""
    layers = [row for row in rows if isinstance(row.case, Case) and isinstance(row.case.config, AttentionConfig)]
    biased = [row for row in layers if getattr(row.case.config, "bias", False)]
    if len(biased) in (0, len(layers)):
        return []
    return [f"{_named(biased)}: with biases, and the other layers without; with bias=0 no layer has them."]


def _named(rows: Sequence[SurveyRow]) -> str:
    """Return the targets of rows, each once."""
    return ", ".join(dict.fromkeys(row.target for row in rows))


def _at(name: str, row: SurveyRow) -> int | str:
    value = row.at[name]
    return int(value) if value.isdecimal() else value


def _readable(columns: Sequence[Column], rows: Sequence[SurveyRow]) -> list[Column]:
    """Return columns in M or G where their numbers are long; those of one thing, as parameters, in one unit."""
    largest: dict[str, int] = {}
    for column in columns:
        if column.of:
            values = [value for row in rows if isinstance(value := column.read(row), int)]
            largest[column.of] = max([largest.get(column.of, 0), *values])
    units = {of: unit_for(size) for of, size in largest.items()}
    return [scaled(one, unit) if (unit := units.get(one.of or "")) else one for one in columns]


def _rows(
    args: argparse.Namespace, varied: Mapping[str, list[str]], names: Sequence[str], given: Assumptions
) -> Iterator[SurveyRow]:
    """Yield a row for each target and point; all targets are parsed and found before the first is counted."""
    points = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    jobs = [
        (name, point, ",".join([text, *(f"{letter}={value}" for letter, value in point.items())]))
        for name, text in zip(args.names or args.target, args.target, strict=True)
        for point in points
    ]
    targets = [parse_target(whole, args) for _, _, whole in jobs]
    words = [whole for _, _, whole in jobs]
    cases = list(with_progress(map(_case, targets, words), "closed form", words))
    for spec in {target.spec: None for target, case in zip(targets, cases, strict=True) if case is None}:
        try:
            check_target(spec)
        except UserCodeError as error:
            raise UsageError(f"{spec}: {error}") from None
    counts = (case or count(target, columns=names, given=given) for target, case in zip(targets, cases, strict=True))
    for found, (name, point, _) in zip(with_progress(counts, "row", words), jobs, strict=True):
        yield SurveyRow(name, point, found)


def _case(target: Any, text: str) -> Case | None:
    """Return the closed form of a target; None of one that has to run."""
    if has_closed_form(target.spec):
        return case_of(target, text)
    if is_configuration(target.spec):
        with suppress(UsageError):
            case = case_of(target, text)
            _ = case.ledger
            return case
    return None


def sentence(rows: Sequence[SurveyRow], names: Sequence[str], in_flops: bool) -> str:
    """Return the least and the greatest value of the first cost that a length changes, with their rows."""
    name = _first_cost(names or DEFAULT)
    known = [row for row in rows if row.accounts.values[name] is not None]
    if not known:
        return f"{name}: not known of any row."
    column = account_column(name)
    if column.kind == "text":
        return f"{plural(len(rows), 'row')}."
    ends = sorted(known, key=lambda row: row.accounts.values[name])
    ends = [ends[0], ends[-1]] if len(ends) > 1 else ends
    texts = []
    for row in ends:
        point = ",".join([row.target, *(f"{letter}={value}" for letter, value in row.at.items())])
        texts.append(f"{format_value(column, column.read(row), in_flops)} of {point}")
    head = (flops_column(column) if in_flops else column).head
    return f"{' '.join(head.split())}: {' to '.join(texts)}."


def _first_cost(names: Sequence[str]) -> str:
    """Return the first of the costs that a length changes, else the first."""
    return next((name for name in names if name not in CONSTANT), names[0])


def plot(path: str, printed: Table[SurveyRow], varied: Mapping[str, list[str]], given: Assumptions) -> None:
    """Draw the first cost of each target over the first varied letter, both axes logarithmic.

    Raises UsageError without a letter whose values are numbers.
    """
    _, *names = (column.key for column in printed.columns if column.key not in varied)
    name = _first_cost(names)
    letter = next(iter(varied), None)
    if letter is None:
        raise UsageError("--plot of several targets draws over a letter: --vary T=128,512")
    try:
        sizes = {value: parse_int(value) for value in varied[letter]}
    except ValueError as error:
        raise UsageError(f"--plot draws over {letter}: {error}") from None
    lines: dict[str, list[tuple[int, Any]]] = {}
    for row in printed.rows:
        others = [f"{other}={value}" for other, value in row.at.items() if other != letter]
        label = ", ".join([row.target, *others])
        lines.setdefault(label, []).append((sizes[row.at[letter]], value_of(name, row.case, given)))
    column = next(one for one in printed.columns if one.key == name)
    with figure(path, 5.5, 3.4 + 0.2 * len(lines)) as (drawn, axes):
        # a line below another is seen through its gaps
        for (label, points), style in zip(lines.items(), cycle(("-", "--", "-.", ":"))):
            axes.plot(*zip(*sorted(points), strict=True), style, marker="o", markersize=3.5, label=label)
        axes.set(xscale="log", yscale="log", xlabel=letter, ylabel=" ".join(column.head.split()))
        axes.set_xticks([*sizes.values()], [f"{size:,}" for size in sizes.values()])
        axes.minorticks_off()
        label_values(axes, [value for points in lines.values() for _, value in points])
        axes.grid(alpha=0.3)
        drawn.legend(loc="outside upper left", frameon=False, fontsize=8)
