"""python -m bench.derive: derive the closed form of a module by running it.

    python -m bench.derive moa-8K8E128D
    python -m bench.derive model.py:make
    python -m bench.derive model.py:Net --input 1,3,224,224 --vars B,H
    python -m bench.derive transformer-base --part model --vars T,S,d_model,N_enc
    python -m bench.derive model.py:make --vars T,h,d_h --base d_h=8:8

make returns (module, inputs), and takes sizes as keyword integers; where one must divide another, let it take their
quotient. Without keywords the sizes are those of its inputs that may vary. One run with symbols for the sizes gives
the polynomial; where the module needs integers, it is fitted to counts on a grid, and the output says so. Exit codes:
0 success; 1 the count is no polynomial, or not the closed form; 2 wrong usage, or a module that cannot be built.
"""

import argparse
import keyword
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headcount.bench.cli import SET, Parser, add_output, exit_process, serve
from headcount.bench.column import Column
from headcount.bench.counting.count import derive_module
from headcount.bench.errors import UsageError
from headcount.bench.result import Result, Row, Table
from headcount.bench.targets.target import Target, is_configuration, parse_settings
from headcount.formulas.ledger import flops
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.presets import preset
from headcount.models.configs.targets import is_layer, make, parse, split, split_lengths

if TYPE_CHECKING:
    from headcount.bench.derive.result import Derivation

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


KIND = Column("kind", "kind")
FORMULA = Column("latex", "LaTeX", wraps=24, formula=True, value=attrgetter("formula"))
COLUMNS = (KIND, Column("text", "polynomial", priority=0, wraps=24), FORMULA)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.derive."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    text = "preset, layer as moa:K=8,E=32,…, FILE.py:NAME or config.json"
    out.add_argument("target", nargs="?", metavar="TARGET", help=text)
    out.add_argument("--preset", metavar="NAME", help="the same as TARGET, of a preset")
    out.add_argument("--module", metavar="SPEC", help="the same as TARGET, FILE.py:FUNCTION or package.module:FUNCTION")
    out.add_argument("--part", choices=PARTS, help="part of the preset (default: attention)")
    out.add_argument("--set", **SET | {"metavar": "NAME=VALUE"}, help="fields, or other arguments of FUNCTION")
    text = "example input of a module: [NAME=]1,128[:long]"
    out.add_argument("--input", action="append", metavar="SIZES", default=[], help=text)
    text = "variables of the closed form (default: all sizes), or names of the input's in their order"
    out.add_argument("--vars", metavar="NAME,NAME", help=text)
    text = "points of the grid (default: found by trying)"
    out.add_argument("--base", nargs="+", metavar="NAME=START[:STEP]", default=[], help=text)
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), command, argv)


def command(args: argparse.Namespace) -> Result:
    """Return the closed form that ``args`` asks for, derived before it is printed."""
    given = [one for one in (args.target, args.preset, args.module) if one]
    if len(given) != 1:
        raise UsageError("give one TARGET: a preset (--preset), FILE.py:FUNCTION (--module) or config.json")
    names = tuple(name.strip() for name in (args.vars or "").split(",") if name.strip())
    if args.vars and not names:
        raise UsageError("--vars names the sizes that the closed form is in, as in --vars T,d_model")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"--vars names {', '.join(twice)} twice")
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"--vars: {name!r} is no name of a size")
    if args.preset:
        # its error names presets alone
        preset(args.preset, {})
    spec, words = split(given[0])
    is_module = args.module or not args.preset and (":" in given[0] or is_configuration(spec)) and not is_layer(spec)
    words += args.set
    return _of_module(args, given[0], spec, words, names) if is_module else _of_preset(args, given[0], words, names)


def _points(words: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return first point and step of each size that --base names."""
    found = {}
    for word in words:
        name, _, numbers = word.partition("=")
        start, _, step = numbers.partition(":")
        try:
            found[name] = parse_int(start), parse_int(step or "1")
        except ValueError:
            found[name] = 0, 0
        if min(found[name]) < 1:
            raise UsageError(f"malformed {word!r}; write --base {name}=START or {name}=START:STEP")
    return found


def _of_preset(args: argparse.Namespace, text: str, words: Sequence[str], names: tuple[str, ...]) -> Result:
    from headcount.bench.derive.derivation import derive
    from headcount.bench.derive.interpolate import Grid
    from headcount.bench.derive.parts import part

    if args.input:
        raise UsageError("--input goes with a module of your own: --vars chooses the sizes of a preset")
    which = args.part or PARTS[0]
    spec, _ = split(text)
    # lengths are variables
    fields, _ = split_lengths(words)
    found = part(make(spec, parse(spec, fields)), which, names)
    given = _points(args.base)
    grid = Grid.at(found.starts, given)
    # a given first point is where the form is asked for
    derivation = derive(found.build, grid, skip_values=nullcontext, own=None if given else found.own)
    return _result(args, f"{text}, {which}", derivation, dict(found.letters), found.closed)


def _of_module(args: argparse.Namespace, text: str, spec: str, words: Sequence[str], names: tuple[str, ...]) -> Result:
    if args.part:
        raise UsageError(f"--part goes with a preset, not with {text}")
    if is_configuration(spec):
        words, lengths = split_lengths(words)
    else:
        lengths = {}
    target = Target(spec, parse_settings(words), tuple(args.input), lengths=lengths)
    found = derive_module(target, names, _points(args.base))
    return _result(args, text, found, {name: name for name in found.sizes}, None)


def _result(
    args: argparse.Namespace,
    title: str,
    found: "Derivation",
    letters: Mapping[str, str],
    closed: Mapping[str, Any] | None,
) -> Result:
    names = ", ".join(letters)
    # json and csv have MACs
    in_flops = args.flops and args.format not in ("json", "csv")
    notes = [f"{name}: {about}." for name, about in found.sizes.items() if about]
    if found.fixed:
        notes.append(f"Fixed by the module: {', '.join(found.fixed)}.")
    notes.append(f"Found by {found.method}.")
    notes += _where_it_holds(found)
    if found.witness:
        failures = [f"{title} is no polynomial in {names}: {found.witness}"]
    else:
        failures = [] if closed is None else _differences(title, found, closed)
    equal = None if closed is None else not failures
    if equal:
        notes.append("Equal to the closed form of formulas/, in total and kind by kind, as polynomials.")
    rows = _rows(found, letters, in_flops)
    rows[0] = replace(rows[0], failures=failures)
    facts = {key: value for key, value in found.as_record().items() if key != "by_kind"}
    title = f"{title}: {'FLOPs' if in_flops else 'multiply-accumulates'} in {names}"
    columns = COLUMNS
    if args.format == "latex":
        columns = (KIND, replace(FORMULA, head="FLOPs" if in_flops else "MACs"))
    table = Table("derive", title, columns, rows, notes, facts={**facts, "equals_closed_form": equal})
    return Result([table], lambda: _sentence(found, equal, in_flops))


def _where_it_holds(found: "Derivation") -> Iterator[str]:
    """Yield where a form from a run with symbols is proved, and what trials around it gave."""
    if found.domain or found.layout:
        # each of torch's choices of a layout holds for sizes of at least 2, but for these
        layouts = f", unless torch chooses other memory layouts, which it may at some {', '.join(found.other_layouts)}"
        domain = f" where {'; '.join(found.domain)} (sufficient, not always necessary)" if found.domain else ""
        counted = f"At the counted {', '.join(found.interpolated)}: holds" if found.interpolated else "Holds"
        yield (
            f"{counted} wherever the module runs, for sizes of at least {2 if found.layout else 1}{domain}"
            f"{layouts if found.other_layouts else ''}."
        )
    if found.tried:
        yield f"Found by trying, not proved: {'; '.join(found.tried)}. Beyond, the module raises or counts otherwise."
    if found.at_one and found.layout:
        yield f"Counted with the same result: {', '.join(found.at_one)}."


def _sentence(found, equal: bool | None, in_flops: bool) -> str:
    """Return the total, and whether it is the closed form."""
    if found.witness:
        return f"No polynomial: {found.witness}."
    comparison = {None: "", True: "; equal to the closed form", False: "; not the closed form"}
    total = f"FLOPs: {flops(found.total).expand()}" if in_flops else f"MACs: {found.total}"
    return f"{total}{comparison[equal]}."


def _rows(found, letters, in_flops: bool) -> list[KindRow]:
    import sympy

    from headcount.formulas.symbols import LEGEND, symbol

    if found.witness:
        return [KindRow("total", "no polynomial", None)]
    legend = {row.letter: row.latex for row in LEGEND}
    words = {name: letter if len(letter) == 1 else rf"\mathit{{{letter}}}" for name, letter in letters.items()}
    words = {name: word.replace("_", r"\_") for name, word in words.items()}
    latex = {symbol(name): legend.get(letter, words[name]) for name, letter in letters.items()}
    polynomials = [*found.by_kind.items(), ("total", found.total)]
    if in_flops:
        polynomials = [(kind, flops(one).expand()) for kind, one in polynomials]
    return [KindRow(kind, str(one), sympy.latex(one, symbol_names=latex)) for kind, one in polynomials]


def _differences(title: str, found, closed) -> list[str]:
    """Return a line for each kind whose polynomial is not the closed form's."""
    kinds = dict.fromkeys((*closed, *found.by_kind))
    differences = {kind: (found.by_kind.get(kind, 0) - closed.get(kind, 0)).expand() for kind in kinds}
    return [f"{title}: {kind} less the closed form is {size}" for kind, size in differences.items() if size != 0]


if __name__ == "__main__":
    exit_process(main())
