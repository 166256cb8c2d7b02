"""Slow calls: functions of names and numbers with JSON results, run in a worker process and cached.

Each raises Disagreement for a count that is not as stated.
"""

import io
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from headcount.__main__ import COMMANDS
from headcount.bench import accounts, records
from headcount.bench.case import Case
from headcount.bench.column import Column
from headcount.bench.counting.count import parse_counters
from headcount.bench.counting.result import Count
from headcount.bench.derive import __main__ as derive
from headcount.bench.macs import compare, grid, published
from headcount.bench.macs.columns import Accounts
from headcount.bench.macs.compare import CrossoverRow, PartRow
from headcount.bench.output.files import write
from headcount.bench.result import R, Row, shown
from headcount.formulas.published import claims, proofs, tables
from headcount.formulas.published.expressions import Relation, expression
from headcount.reports.explorer import models as explorer_models
from headcount.reports.explorer import terms as explorer_terms

ASSUMED = accounts.Assumptions()
"""The assumptions of the accounts, such as the bytes of an element."""


class Disagreement(Exception):
    """A count, a verdict, a closed form or the exit code of an example is not as stated."""

    exit_code = 1


@dataclass(frozen=True)
class Cell:
    """One counter on one formulation on one device, of ``exact`` multiply-accumulates.

    ``difference``: the reported count minus ``exact``; None with a ``reason`` where the counter failed or refused.
    ``causes``: the calls that sum to the difference, each with ``what``, ``name``, ``place``, ``calls``, ``macs``.
    """

    spelling: str
    written: str
    device: str
    counter: str
    exact: int
    difference: int | None
    reason: str = ""
    causes: tuple[Mapping[str, Any], ...] = ()

    @property
    def error(self) -> Fraction | None:
        """The difference in percent of ``exact``; None without a count."""
        return None if self.difference is None else Fraction(100 * self.difference, self.exact)


@dataclass(frozen=True)
class LayerRow(Row):
    """A layer at a length, with accounts."""

    layer: str = shown(Column, "layer")
    T: int = shown(Column, "T", kind="int")
    accounts: Accounts = Accounts()

    @property
    def notes(self) -> list[str]:
        """The reasons for missing accounts."""
        return self.accounts.notes


def check_rows(rows: Iterable[R]) -> list[R]:
    """Return the rows. Disagreement for one that fails."""
    rows = list(rows)
    if failures := [failure for row in rows for failure in row.failures]:
        raise Disagreement(failures[0])
    return rows


def reported(table: str, row: str) -> dict[str, int]:
    """Count the model of a row of a published table, and return what every counter reports, in MACs."""
    counters, again = parse_counters(None), _regenerated(table)
    (made,) = check_rows([again.row(row, again.measured(row, counters))])
    return {tool.counter: tool.macs for tool in made.count.tools or () if tool.macs is not None}


@cache
def _regenerated(name: str) -> published.ReproducedTable:
    return published.ReproducedTable(tables.load(name))


def grid_agreement(spec: str) -> dict[str, int]:
    """Count a grid by every counter, and return the numbers of points, of counts, of counts as predicted, and of
    points with a printed equation, by column heading."""
    rows = check_rows(grid.count_grid(grid.parse(spec), parse_counters(None)).rows)
    counts = [count for row in rows for _, count in row.forms]
    tools = [tool for count in counts for tool in count.tools or ()]
    printed = [row for row in rows if row.printed_equation_macs is not None]
    return {
        "points": len(counts),
        "counts": len(tools),
        "as predicted": sum(tool.macs == tool.predicted_macs for tool in tools),
        "printed + left out = exact": sum(
            row.printed_equation_macs + sum(row.omitted_macs.values()) == row.count.ledger.macs for row in printed
        ),
        "with a printed equation": len(printed),
    }


def layer_accounts(layers: Sequence[tuple[str, str]], lengths: Sequence[int], names: Sequence[str]) -> list[LayerRow]:
    """Return accounts of layers, named sizes as in a grid, at each length; activation peaks are measured.

    A layer with an ideal form has two rows.
    """
    rows = []
    for T, (name, sizes) in product(lengths, layers):
        found = grid.parse(f"{sizes} T={T}")
        case = grid.case_at(found.variant, *found.points())
        forms = {", as released": case, ", ideal": case.ideal} if case.ideal else {"": case}
        for form, one in forms.items():
            rows.append(LayerRow(name + form, T, Accounts(*accounts.values(names, one, ASSUMED))))
    return rows


def audit() -> list[Cell]:
    """Count every formulation by every counter on cpu and meta, with the causes of each difference."""
    from headcount.bench.macs import audit as formulations

    counters, found = parse_counters(None), []
    for row in check_rows(formulations.count_formulations(counters, None)):
        cell = partial(Cell, row.spelling, row.written, row.device)
        if row.failed:
            # a formulation that could not run has a prefix before the reason
            reason = row.failed.removeprefix("failed: ")
            found += [cell(name, row.exact, None, reason) for name in ("headcount", *counters)]
            continue
        found.append(cell("headcount", row.exact, row.headcount))
        for count in row.counts:
            causes = tuple(map(vars, count.explanation.causes)) if count.explanation else ()
            found.append(cell(count.counter, row.exact, count.difference, count.reason or "", causes))
    return found


def comparison(a: str, b: str) -> tuple[list[PartRow], list[CrossoverRow]]:
    """Compare two presets: by block, and the crossovers, confirmed by PyTorch's own counter."""
    by_block, *_, crossed = compare.tables(Case.of(a), Case.of(b), ["torch"], None)
    return check_rows(by_block.rows), check_rows(crossed.rows)


def searches(name: str, largest_sum: int) -> list[proofs.Search]:
    """Return the searches of a claim's relation as printed and as executed, up to a sum of all letters."""
    (claim,) = (one for one in claims.load().claims if one.name == name)
    return [proofs.search(claim, relation, largest_sum) for relation in (claim.as_printed, claim.as_executed)]


def terms() -> dict[str, Any]:
    """Return the closed forms of the explorer's layers, term by term."""
    return explorer_terms.as_data()


def models() -> dict[str, Any]:
    """Return the closed forms of the explorer's whole models."""
    return explorer_models.as_data()


def derivation(argv: str) -> tuple[list[derive.KindRow], list[str]]:
    """Return the closed form from ``python -m bench.derive`` for these arguments: its rows, and how it was found."""
    (table,) = derive.command(derive.parser().parse_args(argv.split())).tables
    return check_rows(table.rows), list(table.above)


def outputs(commands: Sequence[str], code: int, files: Mapping[str, str]) -> list[list[str]]:
    """Return the lines that each command prints in a folder of ``files``, texts by name. Disagreement for an exit code
    of the last one other than ``code``, of the others than 0."""
    codes = [0] * (len(commands) - 1) + [code]
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            write(Path(folder, name), text)
        return [run_command(one, own, folder) for one, own in zip(commands, codes, strict=True)]


def changed_kernels() -> list[str]:
    """Return the stored rows of latency that launch other kernels today than when they were measured."""
    from headcount.bench.latency import efficiencies

    return efficiencies.changed_keys(records.shipped() / efficiencies.RECORDS)


def cost(text: str, letters: tuple[tuple[str, int], ...]) -> int:
    """Return an expression over COSTS, counted on built layers."""
    return expression(text).value(dict(letters), COSTS)


def countable(relation: Relation) -> bool:
    """Return whether every cost in a relation can be counted on a built layer."""
    return relation.costs <= COSTS.keys()


@cache
def _layer(**sizes: int) -> grid.GridRow:
    """Return one layer under PyTorch's own counter."""
    spec = " ".join(f"{letter}={size}" for letter, size in sizes.items())
    (row,) = check_rows(grid.count_grid(grid.parse(spec), ["torch"]).rows)
    return row


def _layer_of(names: str, **fixed: int) -> Callable[..., grid.GridRow]:
    """Return a function that maps letters to the layer with the sizes ``names``."""
    return lambda **letters: _layer(**{name: letters[name] for name in names.split()}, **fixed)


_moa, _mha, _moh = _layer_of("d_m T K E D"), _layer_of("d_m T", h=1), _layer_of("h s r d_h g d_m T")


def _macs(count: Count) -> int:
    (tool,) = count.tools
    return tool.macs


def _multi_query(*, T: int, d_m: int, K: int, D: int, **_: int) -> int:
    # a MoA layer without its router: K query heads, one key/value head
    return _macs(_layer(d_m=d_m, T=T, h=K, d_h=D, g=1).count)


def _multi_query_projections(**letters: int) -> int:
    # a T + b T^2 are counted at T and at 2 T, and the projections are a T
    once, twice = (_multi_query(**{**letters, "T": T}) for T in (letters["T"], 2 * letters["T"]))
    return (4 * once - twice) // 2


def _params(count: Count) -> int:
    # the papers count layers without biases
    biases = sum(entry.params for entry in count.ledger if entry.kind in ("bias", "expert_bias"))
    return count.params - biases


COSTS: dict[str, Callable[..., int]] = {
    "moa_macs": lambda **letters: _macs(_moa(**letters).count),
    "mha_macs": lambda **letters: _macs(_mha(**letters).count),
    "moa_params": lambda **letters: _params(_moa(**letters).count),
    "mha_params": lambda **letters: _params(_mha(**letters).count),
    "moa_router_macs": lambda **letters: _macs(_moa(**letters).count) - _multi_query(**letters),
    "moa_projection_macs": _multi_query_projections,
    "moh_macs": lambda **letters: _macs(_moh(**letters).count),
    "moh_ideal_macs": lambda **letters: _macs(_moh(**letters).ideal),
    "moh_params": lambda **letters: _params(_moh(**letters).count),
}
"""The costs of formulas/published/costs.py that can be counted on a built layer."""


def run_command(command: str, code: int, folder: str) -> list[str]:
    """Return the lines on stdout of ``python -m bench.NAME …`` or ``headcount NAME …``, run in this process in a
    folder at 80 columns. Disagreement for another exit code than ``code``."""
    module, arguments = parse_command(command)
    out, errors = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, COLUMNS="80"), chdir(folder), redirect_stdout(out), redirect_stderr(errors):
        prog = " ".join(shlex.split(command)[: -len(arguments) or None])
        exit_code = import_module(f"headcount.{module}").main(arguments, prog=prog)
    if exit_code != code:
        raise Disagreement(f"{command}: {errors.getvalue()}")
    return out.getvalue().splitlines()


def parse_command(command: str) -> tuple[str, list[str]]:
    """Return the module of a command, and the arguments."""
    words = shlex.split(command)
    if words[0] == "headcount":
        return COMMANDS[words[1]][0], words[2:]
    if words[3:4] == ["campaign"]:
        return f"{words[2]}.campaign", words[4:]
    return f"{words[2]}.__main__", words[3:]
