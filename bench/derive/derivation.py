"""Derive the closed form of a module from runs: with symbols in one run, else from counts on a grid."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice, permutations, product
from math import lcm
from typing import Any

import sympy
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from headcount.bench.column import plural
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.counters.run_context import one_thread
from headcount.bench.derive.edges import Edges, find_edges
from headcount.bench.derive.guards import ROUNDED, Domain, format_guard, holds_from_two
from headcount.bench.derive.input_sizes import find_input_sizes, resized
from headcount.bench.derive.interpolate import LINE, Count, Grid, NoPolynomial, fit_polynomial, shown, validate_at
from headcount.bench.derive.result import Derivation, starts
from headcount.bench.derive.symbolic import Build, CannotBuild, NotSymbolic, count_at, count_symbolic
from headcount.bench.targets.target import Target, is_configuration
from headcount.bench.targets.user_code import (
    Built,
    UserCodeError,
    accepts,
    build,
    build_target,
    build_that_runs,
    check_settings,
    load,
)
from headcount.formulas.symbols import format_sizes, symbol

SYMBOLIC_LINE = 5
"""Points along an integer size while others are symbols: four fix the degree, one validates it."""


MOST_TRIED = 60
"""The most first points that are tried for a module that cannot be built at the usual ones."""
MOST_GRIDS = 3
"""The most of these grids from which a closed form is derived: a run with symbols takes seconds."""
DIVISORS = 6
"""The largest of the divisors tried of a size: a cost of degree 3 follows from four of them."""
TRIED_SIZES = (8, 4, 24, 2)
"""Sizes of such points: multiples of one another, as widths are of heads."""


def derive_module(target: Target, names: Sequence[str], given: Mapping[str, tuple[int, int]]) -> Derivation:
    """Return the closed form of a user module, or of a configuration's model, in the sizes ``names``.

    They are keywords of the function; all its whole numbers where there are no names. Of a function without any, of a
    module with inputs of --input and of a configuration, they name the sizes of the inputs that may vary, in their
    order. ``given`` are first points and steps of sizes by name, the others are searched for.

    Raises UserCodeError, also for unsupported operations.
    """
    function = None if is_configuration(target.spec) else load(target.spec)
    parameters = {} if function is None or target.inputs else whole_numbers(function, target.settings)
    try:
        if function and not target.inputs and (parameters or not accepts(function, (), target.settings)):
            return _of_keywords(target, function, names, parameters, given)
        return _of_inputs(target, names, given)
    except CannotBuild as error:
        raise UserCodeError(str(error)) from error
    except UnsupportedError as error:
        raise UserCodeError(f"{error.reason}; a closed form needs every operation to be known") from error


def whole_numbers(function: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the keywords of ``function`` that are sizes, with their defaults: whole numbers, and those without any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        # a function in C++ has none
        return {}
    found: dict[str, int | None] = {}
    for name, one in parameters.items():
        if name in settings or one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            continue
        if one.default is one.empty and one.annotation in (one.empty, int, "int"):
            found[name] = None
        elif type(one.default) is int and one.default > 0:
            found[name] = one.default
    return found


def _of_keywords(
    target: Target, function: Callable[..., Any], names: Sequence[str], parameters: Mapping[str, int | None],
    given: Mapping[str, tuple[int, int]],
) -> Derivation:  # fmt: skip
    """Return the closed form in keywords of a function."""
    names = names or list(parameters)
    check_settings(target.spec, function, {**target.settings, **dict.fromkeys(names, 1)})

    def build_at(**sizes):
        module, args, kwargs = build(target.spec, function, {**target.settings, **sizes})
        return module.eval(), args, kwargs

    own = {name: size for name in names if (size := parameters.get(name))}
    is_whole = len(own) == len(names)
    usual = starts({name: name for name in names})
    if given:
        grids = [Grid.at(usual, given)]
    else:
        ones = dict.fromkeys(names, 1)
        grids = [Grid(usual, ones)]
    # the own sizes last: a model that needs values runs there, and at ten times each of them
    last = [Grid(own, own), Grid(own, ones)] if is_whole and not given else []
    searched = () if given else islice(_searched(build_at, names), MOST_GRIDS)
    found = _derive_at_first(build_at, chain(grids, searched, last), own if is_whole else None)
    return replace(found, sizes=dict.fromkeys(names, ""))


def _of_inputs(target: Target, names: Sequence[str], given: Mapping[str, tuple[int, int]]) -> Derivation:
    """Return the closed form in the sizes of the inputs that may vary."""

    note, device = "", None

    def move(call: tuple[nn.Module, tuple, dict[str, Any]], device: str | None) -> tuple[nn.Module, tuple, dict]:
        module, *inputs = call
        return (module.eval(), *tree_map_only(Tensor, lambda one: one.to(device), inputs))

    def build_example(**_):
        return move(build_target(target).call, device)

    def run(_: Target, built: Built) -> str:
        # a model that reads values of its inputs does not run without them
        for where in ("meta", "cpu"):
            try:
                count_at(partial(move, built.call, where), FakeTensorMode, {})
                return where
            except CannotBuild as error:
                failed = error
        raise UserCodeError(str(failed)) from failed

    if is_configuration(target.spec):
        asked = target
        with one_thread():
            target, built, device = build_that_runs(target, run)
        note = "" if target is asked else f". {built.notes[-1].rstrip('.')}"
    with one_thread():
        free, fixed = find_input_sizes(build_example, lambda build, point: count_at(build, FakeTensorMode, point))
    if not free:
        raise UserCodeError("it runs with no other sizes of its inputs; give it keywords: make(T, d)")
    if names and len(names) != len(free):
        listed = ", ".join(f"{size.about} ({size.example:,})" for size in free)
        raise UserCodeError(f"--vars names {plural(len(names), 'size')} of {len(free)} that may vary: {listed}")
    free = [replace(size, name=name) for size, name in zip(free, names or [one.name for one in free], strict=True)]
    own = {size.name: size.example for size in free}
    # a size of 1 is broadcast where another is not
    first = {name: size if size > 1 else 3 for name, size in own.items()}
    less = {name: max(1, size // 16) for name, size in first.items()}
    steps = (dict.fromkeys(first, 1), first)
    grids = [*(Grid(first, step) for step in steps), Grid(less, less)]
    if given:
        grids = [Grid.at(first, given)]
    found = _derive_at_first(resized(build_example, free), grids, own)
    about = {size.name: f"{size.about}, {size.example:,} in the example" for size in free}
    held = tuple(f"{size.about} = {size.example:,}" for size in fixed)
    return replace(found, method=found.method + note, sizes=about, fixed=held)


def _searched(build: Build, names: Sequence[str]) -> Iterator[Grid]:
    """Yield grids at whose first two points the module can be built, those of the most different sizes first, each
    before those in which a size divides another."""
    points = sorted(product(TRIED_SIZES, repeat=len(names)), key=lambda sizes: -len(set(sizes)))
    for sizes in points[:MOST_TRIED]:
        base = dict(zip(names, sizes, strict=True))
        if all(_runs(build, {name: factor * size for name, size in base.items()}) for factor in (1, 2)):
            yield Grid(base, base)
            yield from _dividing(build, base)


def _dividing(build: Build, base: Mapping[str, int]) -> Iterator[Grid]:
    """Yield grids for a size that must divide another, as heads divide a width: 1 to DIVISORS of multiples of all."""
    whole = lcm(*range(1, DIVISORS + 1))
    divisors = [name for name, size in base.items() if not _runs(build, {**base, name: LINE * size})]
    for name, other in permutations(base, 2):
        first = {**base, name: 1, other: whole}
        ends = ({name: DIVISORS - 1}, {name: DIVISORS}, {other: LINE * whole})
        if name in divisors and all(_runs(build, first | end) for end in ends):
            yield Grid(first, first, {name: DIVISORS})


def _runs(build: Build, point: Mapping[str, int]) -> bool:
    """Return whether a module can be built and run at a point."""
    with suppress(CannotBuild), one_thread():
        count_at(build, FakeTensorMode, point)
        return True
    return False


def _derive_at_first(build: Build, grids: Iterable[Grid], own: Mapping[str, int] | None) -> Derivation:
    """Return the closed form from the first of ``grids`` at whose points the module can be built.

    Raises the CannotBuild of the first grid where there is none.
    """
    failed: CannotBuild | None = None
    for grid in grids:
        try:
            return derive(build, grid, own=own)
        except CannotBuild as error:
            failed = failed or error
    assert failed
    raise failed


def derive(
    build: Build,
    grid: Grid,
    skip_values: Callable[[], AbstractContextManager] = FakeTensorMode,
    own: Mapping[str, int] | None = None,
) -> Derivation:
    """Return the closed form of the module of ``build`` in the sizes of ``grid``.

    A run from sizes of ``grid`` may decide otherwise than one of the ``own`` sizes of a model; where it does, and a run
    from these gives a polynomial too, that one is returned.

    All sizes are symbols at first. Those that a run needs as integers go on the grid, and all of them where no run with
    symbols gives a polynomial. ``skip_values``: the context in which tensors of integer sizes have no values;
    nullcontext for a module on meta. Raises CannotBuild for a point where it cannot be built, and UnsupportedError for
    unsupported operations.
    """
    found, domain = _derive(build, grid, skip_values)
    if not own or Domain(domain.conditions).holds_at(own):
        return found
    beyond = Grid(own, grid.step)
    try:
        there, domain = _derive(build, beyond, skip_values)
        # a domain of one point is no closed form
        if not there.witness and any(map(Domain(domain.conditions).holds_at, _validation_points(beyond)[:-1])):
            return there
    except CannotBuild:
        pass
    return replace(found, method=f"{found.method}; it does not hold at the model's own {format_sizes(own)}")


def _derive(build: Build, grid: Grid, skip_values: Callable[[], AbstractContextManager]) -> tuple[Derivation, Domain]:
    """Return the closed form from runs at and beyond the first point of ``grid``, and where they hold."""
    count = partial(count_at, build, skip_values)
    pinned, reason = (), ""
    with one_thread():
        while True:
            try:
                return _fit(build, count, grid, pinned, reason)
            except NotSymbolic as error:
                pinned, reason = pinned + error.pinned if error.pinned else tuple(grid.base), str(error)
            except NoPolynomial as error:
                if len(pinned) == len(grid.base):
                    return Derivation({}, f"counts at integer sizes, because {reason}", witness=str(error)), Domain()
                pinned, reason = tuple(grid.base), reason or str(error)


def _fit(build: Build, count: Count, grid: Grid, pinned: tuple[str, ...], reason: str) -> tuple[Derivation, Domain]:
    """Return the closed form from runs with symbols for all sizes but the ``pinned`` ones, which go on the grid.

    Return the domain of these runs too.

    Raises NotSymbolic for a run that cannot have these symbols, and NoPolynomial.
    """
    free = {name: start for name, start in grid.base.items() if name not in pinned}
    inner = grid.along(pinned)
    domains = []

    def run(point: Mapping[str, int]) -> Mapping[str, Any]:
        if not free:
            return count(point)
        by_kind, domain = count_symbolic(build, free, point)
        domains.append(domain)
        return by_kind

    line = SYMBOLIC_LINE if free else LINE
    try:
        by_kind, number = fit_polynomial(run, inner, line)
    except CannotBuild as error:
        raise CannotBuild(error.reason, inner.reach(line)) from error
    if len({frozenset(one.conditions) for one in domains}) > 1:
        raise NotSymbolic(f"{reason}, and its path changes with {', '.join(pinned)}")
    for kind, form in by_kind.items():
        letters = {*map(symbol, grid.base)}
        if form.free_symbols - letters or not form.is_polynomial(*letters):
            raise NotSymbolic(_no_polynomial(kind, form, grid.base))
    conditions = domains[0].conditions if domains else ()
    domain = Domain(conditions, tuple(dict.fromkeys(guard for one in domains for guard in one.layout)))
    points = list(islice(_confirmed(count, by_kind, filter(domain.holds_at, _validation_points(grid))), 2))
    method = "one run with symbols for the sizes"
    if pinned:
        others = ", with symbols for the other sizes" if free else ""
        method = f"interpolation over {inner}{others}, because {reason}: exact through {number} runs"
    where = "; ".join(map(format_sizes, points))
    method += f", confirmed by counting at {where}" if where else "; no point was found to confirm it at"
    if not free:
        method += "; sizes at which the module takes another path would be missed"
    edges = find_edges(partial(_holds, count, by_kind), grid.base, list(free), conditions) if free else Edges()
    other_layouts = {
        name for guard in domain.layout if not holds_from_two(guard) for name in map(str, guard.free_symbols)
    }
    found = Derivation(
        by_kind,
        method,
        tuple(map(format_guard, conditions)),
        edges.bounds,
        edges.at_one,
        tuple(map(format_guard, domain.layout)),
        tuple(name for name in grid.base if name in other_layouts),
        pinned,
    )
    return found, domain


def _confirmed(
    count: Count, by_kind: Mapping[str, sympy.Expr], points: Iterable[Mapping[str, int]]
) -> Iterator[Mapping[str, int]]:
    """Iterate over the points at which the counts are those of the polynomials. Raises NoPolynomial at another.

    A point at which the module cannot be built says nothing; raises CannotBuild where there are only such.
    """
    failed: CannotBuild | None = None
    is_confirmed = False
    for point in points:
        try:
            validate_at(count, by_kind, [point])
        except CannotBuild as error:
            failed = failed or error
            continue
        is_confirmed = True
        yield point
    if failed and not is_confirmed:
        raise failed


def _no_polynomial(kind: str, form: sympy.Expr, names: Iterable[str]) -> str:
    """Return why the cost of a kind of product is no polynomial in the sizes called ``names``."""
    if form.free_symbols - {*map(symbol, names)}:
        return f"the cost of {kind} depends on values of tensors"
    if form.has(*ROUNDED):
        return f"the cost of {kind} has rounded quotients, {shown(form)} (--base NAME=START:STEP keeps a remainder)"
    return f"the cost of {kind} is {shown(form)}"


def _holds(count: Count, by_kind: Mapping[str, sympy.Expr], point: Mapping[str, int]) -> bool:
    """Return whether the module runs at a point and counts what the polynomials give."""
    try:
        validate_at(count, by_kind, [point])
    except (NoPolynomial, CannotBuild, UnsupportedError):
        return False
    return True


def _validation_points(grid: Grid) -> list[dict[str, int]]:
    """Return points outside the grid, then multiples of the base, which keep its divisibility, then its neighbours."""
    multiples = [{name: start * factor for name, start in grid.base.items()} for factor in (7, 11, 4)]
    return grid.outside() + multiples + [grid.point([n] * len(grid.base)) for n in (2, 1)]
