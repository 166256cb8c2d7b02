"""python -m bench.derive: derive the closed form of a module by running it.

    python -m bench.derive --preset moa-8K8E128D --vars T,S,K,E,D,d_model
    python -m bench.derive --preset transformer-base --part feed-forward --vars T,d_model,d_ff
    python -m bench.derive --preset transformer-base --part model --vars T,S,d_model,d_ff,vocab_size,N_enc,N_dec
    python -m bench.derive --module FILE.py:FUNCTION --vars T,h,d_h --base d_h=8:8

FUNCTION takes the variables as keyword integers and returns (module, inputs); where one size must divide another, let
it take their quotient. One run with symbols for the sizes gives the polynomial; where the module needs integers, it is
fitted to counts on a grid, and the output says so. Exit codes: 0 success; 1 the count is no polynomial, or not the
closed form; 2 wrong usage, or a module that cannot be built at a point of the grid.
"""

import argparse
import keyword
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter

from headcount.bench.cli import Parser, add_output, exit_process, serve
from headcount.bench.column import Column
from headcount.bench.counting.count import derive_module
from headcount.bench.errors import UsageError
from headcount.bench.output.arguments import SET
from headcount.bench.result import Result, Row, Table
from headcount.bench.targets.target import parse_settings
from headcount.models.configs.numbers import parse_int

PROG = "python -m bench.derive"
PARTS = ("attention", "feed-forward", "model")


@dataclass(frozen=True)
class KindRow(Row):
    """The MACs of a kind of operation as a polynomial, in text and in LaTeX."""

    kind: str
    text: str
    latex: str | None
    failures: Sequence[str] = ()

    @property
    def formula(self) -> str | None:
        """The LaTeX between dollar signs."""
        return self.latex and f"${self.latex}$"


COLUMNS = (
    Column("kind", "kind"),
    Column("text", "polynomial", priority=0, wraps=24),
    Column("latex", "LaTeX", wraps=24, formula=True, value=attrgetter("formula")),
)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.derive."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("--preset", metavar="NAME", help="a model by name (headcount table --list)")
    out.add_argument("--part", choices=PARTS, default="attention", help="part of the preset (default: attention)")
    out.add_argument("--module", metavar="SPEC", help="a user module: FILE.py:FUNCTION or package.module:FUNCTION")
    out.add_argument("--set", **SET | {"metavar": "NAME=VALUE"}, help="fields, or other arguments of FUNCTION")
    out.add_argument("--vars", metavar="NAME,NAME", help="variables of the closed form")
    out.add_argument("--base", nargs="+", metavar="NAME=START[:STEP]", default=[], help="points of the grid")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), command, argv)


def command(args: argparse.Namespace) -> Result:
    """Return the closed form that ``args`` asks for, derived before it is printed."""
    if bool(args.preset) == bool(args.module):
        raise UsageError("give --preset or --module")
    names = tuple(name.strip() for name in (args.vars or "").split(",") if name.strip())
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"--vars names {', '.join(twice)} twice")
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"--vars: {name!r} is no name of a size")
    if not names:
        raise UsageError("--vars names the sizes that the closed form is in, as in --vars T,d_model")
    return _of_module(args, names) if args.module else _of_preset(args, names)


def _grid(words: Sequence[str], starts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return first values and steps by name: the given ones, else ``starts`` in steps of 1."""
    base, steps = dict(starts), dict.fromkeys(starts, 1)
    for word in words:
        name, _, numbers = word.partition("=")
        if name not in starts:
            raise UsageError(f"unknown variable {name!r} in --base; choose from {', '.join(starts)}")
        start, _, step = numbers.partition(":")
        try:
            base[name], steps[name] = parse_int(start), parse_int(step or "1")
        except ValueError:
            base[name] = 0
        if min(base[name], steps[name]) < 1:
            raise UsageError(f"malformed {word!r}; write --base {name}=START or {name}=START:STEP")
    return base, steps


def _of_preset(args, names: tuple[str, ...]) -> Result:
    from headcount.bench.derive.derivation import derive
    from headcount.bench.derive.interpolate import Grid
    from headcount.bench.derive.parts import part
    from headcount.models.configs.presets import parse_overrides

    found = part(args.preset, args.part, parse_overrides(args.preset, args.set), names)
    grid = Grid(*_grid(args.base, found.starts))
    # a given first point is where the form is asked for
    derivation = derive(found.build, grid, skip_values=nullcontext, own=None if args.base else found.own)
    return _result(f"{args.preset}, {args.part}", names, derivation, dict(found.letters), found.closed)


def _of_module(args, names: tuple[str, ...]) -> Result:
    from headcount.bench.derive.result import starts

    base, step = _grid(args.base, starts({name: name for name in names}))
    found = derive_module(args.module, parse_settings(args.set), base, step)
    return _result(args.module, names, found, {}, None)


def _result(title: str, names, found, letters: dict[str, str], closed) -> Result:
    notes = [f"Found by {found.method}."]
    if found.domain or found.layout:
        notes.append(f"Holds for sizes of at least 1{' where ' if found.domain else ''}{'; '.join(found.domain)}.")
    if found.layout:
        notes.append("torch's choice of memory layouts adds conditions; --format json has them.")
    if found.witness:
        failures = [f"{title} is no polynomial in {', '.join(names)}: {found.witness}"]
    else:
        failures = [] if closed is None else _differences(title, found, closed)
    equal = None if closed is None else not failures
    if equal:
        notes.append("Equal to the closed form of formulas/, in total and kind by kind, as polynomials.")
    rows = _rows(found, letters)
    rows[0] = replace(rows[0], failures=failures)
    facts = {key: value for key, value in found.as_record().items() if key != "by_kind"}
    title = f"{title}: multiply-accumulates in {', '.join(names)}"
    table = Table("derive", title, COLUMNS, rows, notes, facts={**facts, "equals_closed_form": equal})
    return Result([table], lambda: _sentence(found, equal))


def _sentence(found, equal: bool | None) -> str:
    """Return the total, and whether it is the closed form."""
    if found.witness:
        return f"No polynomial: {found.witness}."
    comparison = {None: "", True: "; equal to the closed form", False: "; not the closed form"}
    return f"MACs: {found.total}{comparison[equal]}."


def _rows(found, letters) -> list[KindRow]:
    import sympy

    from headcount.formulas.symbols import LEGEND, symbol

    if found.witness:
        return [KindRow("total", "no polynomial", None)]
    legend = {row.letter: row.latex for row in LEGEND}
    words = {name: rf"\mathit{{{letter}}}".replace("_", r"\_") for name, letter in letters.items()}
    latex = {symbol(name): legend.get(letter, words[name]) for name, letter in letters.items()}
    polynomials = (*found.by_kind.items(), ("total", found.total))
    return [KindRow(kind, str(one), sympy.latex(one, symbol_names=latex)) for kind, one in polynomials]


def _differences(title: str, found, closed) -> list[str]:
    """Return a line for each kind whose polynomial is not the closed form's."""
    kinds = dict.fromkeys((*closed, *found.by_kind))
    differences = {kind: (found.by_kind.get(kind, 0) - closed.get(kind, 0)).expand() for kind in kinds}
    return [f"{title}: {kind} less the closed form is {size}" for kind, size in differences.items() if size != 0]


if __name__ == "__main__":
    exit_process(main())
