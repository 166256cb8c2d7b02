"""The papers' tables as plain data: the parts that a table's rule may count, with their totals, and the rounding."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from headcount.bench.case import Case
from headcount.bench.macs import published
from headcount.formulas import conventions
from headcount.formulas.ledger import Entry, ledger
from headcount.formulas.published.figures import Figure, evaluate
from headcount.formulas.published.rounding import decimals, read
from headcount.formulas.published.tables import PublishedTable
from headcount.formulas.published.verdicts import Judged, adjustments
from headcount.reports.explorer.parts import part
from headcount.reports.facts import Facts

UNCOUNTED = "megatron_model"
"""The rule that gives the size of a part that a figure's rule does not count."""
QUOTIENTS = "its figures are not sums over the parts of a model, but quotients, or formulas of printed sizes"
FORMULAS = "its figures are formulas of printed sizes, and no model here has them"
Models = dict[str, dict[str, Any]]
"""By model and quantity, the total of each part."""
_PROPERTIES = {"macs": "size", "params": "params"}
"""The property of an entry that a column sums, by the column's quantity."""


def tables(facts: Facts) -> dict[str, Any]:
    """Return the tables that print MACs or parameters, then those of figures that are sums over a model.

    ``parts``: by label, whether the part is a contraction; ``models``: by preset and quantity, the totals of parts,
    each by its place in ``parts``, as text from 2^53 on; ``tables``: each with its columns, see :func:`_column`;
    ``absent``: the others, each with why no switch of a part applies to it.
    """
    models: Models = {}
    parts: dict[str, bool] = {}
    served = []
    for table in facts.tables.values():
        columns = [_of_model(facts, table, one, models) for one in table.columns if one.quantity in _PROPERTIES]
        served.append((table, columns, "headcount table {} --counter closed-form", QUOTIENTS))
        for entry in (entry for row in table.rows if columns for entry in facts.ledger(row.target)):
            parts[part(entry)] = parts.get(part(entry), False) or conventions.exact(entry)
    for table, cells in facts.figures.values():
        columns = [one for figure in table.columns if (one := _figures(facts, figure, cells, models))]
        served.append(
            (table, columns, "headcount table {}", QUOTIENTS if any(c.row.target for c in cells) else FORMULAS)
        )
    found, absent = [], []
    for table, columns, command, why in served:
        more = {"command": command.format(table.name), "columns": columns} if columns else {"why": why}
        (found if columns else absent).append({"name": table.name, "title": table.title, **more})
    place = {label: i for i, label in enumerate(parts)}
    for model in models.values():
        for quantity, totals in model.items():
            model[quantity] = [(place[label], size if size < 2**53 else str(size)) for label, size in totals.items()]
    return {"parts": parts, "models": models, "tables": found, "absent": absent}


def _column(figure: Figure, multiplicity: dict[str, int], rows: list[list[Any]], **head: str) -> dict[str, Any]:
    """Return a column and its rows: name, model, cell, verdict and reason where the column is judged, what closes its
    gap, and how the cell is printed where that is not as the first one. ``multiplicity``: how many times the rule
    counts each part."""
    usual = _printing(figure, rows[0][2])
    rows = [row if (own := _printing(figure, row[2])) == usual else [*row, own] for row in rows]
    return {"rule": figure.statement, "multiplicity": multiplicity, "print": usual, "rows": rows, **head}


def _of_model(facts: Facts, table: PublishedTable, column: Figure, models: Models) -> dict[str, Any]:
    """Return a column of MACs or parameters; the parts of its models go into ``models``."""
    quantity, account = column.quantity, _PROPERTIES[column.quantity]
    multiplicity, rows = {}, []
    for row in table.rows:
        form = facts.ledger(row.target)
        totals = {label: size for label, size in form.group(part, account).items() if size}
        models.setdefault(row.target, {})[quantity] = totals
        counted = column.multiplicity if quantity == "macs" else lambda entry: 1
        multiplicity |= {part(entry): counted(entry) for entry in form if getattr(entry, account)}
        if column.name in row.printed:
            verdict = facts.verdicts(table.name)[row.name] if column.judged else ("", "")
            adjust = adjustments(row, column, Case.of(row.target))
            rows.append([row.name, row.target, row.printed[column.name], *verdict, adjust])
    return _column(column, multiplicity, rows, quantity=quantity, suffix=column.name.removeprefix(quantity))


def _figures(facts: Facts, figure: Figure, cells: list[Judged], models: Models) -> dict[str, Any] | None:
    """Return a column of figures with its rows that are sums of whole numbers over the parts of their models, which go
    into ``models``; None without such a row."""
    of_models = [cell for cell in cells if cell.figure.name == figure.name and cell.row.target]
    found = [(cell, _totals(facts, cell, figure.rule)) for cell in of_models]
    sums = [(cell, counted) for cell, counted in found if sum(counted.values()) == cell.value.low == cell.value.high]
    if figure.formula or not sums:
        return None
    multiplicity, rows = {label: 1 for _, counted in sums for label in counted}, []
    for cell, counted in sums:
        others = _totals(facts, cell, UNCOUNTED) if figure.rule else {}
        totals = {label: size for label, size in others.items() if not multiplicity.get(label)} | counted
        multiplicity = dict.fromkeys(totals, 0) | multiplicity
        name = f"{cell.row.target}, {cell.row.name}"
        models.setdefault(name, {})[figure.name] = totals
        rows.append([cell.row.name, name, cell.printed.replace(",", ""), cell.verdict, cell.because, []])
    return _column(figure, multiplicity, rows, quantity=figure.name, label=figure.head, suffix="")


def _totals(facts: Facts, cell: Judged, rule: str) -> dict[str, int]:
    """Return a cell's value by part, without zeros; nothing where the value of a part is no whole number."""
    whole = published.case_of(cell.row)
    parts: dict[str, list[Entry]] = {}
    for entry in whole.ledger:
        parts.setdefault(part(entry), []).append(entry)
    found = {}
    for label, entries in parts.items():
        sizes = {name: getattr(whole, name) for name in ("tokens", "target_tokens", "samples", "has_paths")}
        only = SimpleNamespace(ledger=ledger(entries), flops_per_token=whole.flops_per_token, **sizes)
        try:
            found[label] = evaluate(cell.row, replace(cell.figure, rule=rule), lambda *_, only=only: only).low
        except (ValueError, ZeroDivisionError):  # a quotient of parts
            return {}
    is_whole = all(size.denominator == 1 for size in found.values())
    return {label: int(size) for label, size in found.items() if size and is_whole}


def _printing(figure: Figure, text: str) -> dict[str, Any]:
    """Return how a figure is printed, as the page's ``printed`` takes it."""
    digits, suffix, unit = read(text)
    zeros = len(digits) - len(digits.rstrip("0")) if figure.trailing_zeros and "." not in digits else 0
    rule = {"unit": suffix, "decimals": decimals(digits), "scale": str(unit * figure.scale)}
    rule |= {"multiple": str(figure.multiple * 10**zeros), "significant": figure.significant}
    return {**rule, "shift": [0, 1] if figure.truncated else [1, 2]}
