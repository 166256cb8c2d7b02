"""Derive the closed form of a module from runs: with symbols in one run, else from counts on a grid."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import sympy
from torch._subclasses.fake_tensor import FakeTensorMode

from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.counters.run_context import one_thread
from headcount.bench.derive.guards import Domain, format_guard
from headcount.bench.derive.interpolate import LINE, Count, Grid, NoPolynomial, fit_polynomial, validate_at
from headcount.bench.derive.result import Derivation
from headcount.bench.derive.symbolic import Build, CannotBuild, NotSymbolic, count_at, count_symbolic
from headcount.bench.targets.user_code import UserCodeError, build, check_settings, load
from headcount.formulas.symbols import format_sizes, symbol

SYMBOLIC_LINE = 5
"""Points along an integer size while others are symbols: four fix the degree, one validates it."""


def derive_module(
    spec: str, settings: Mapping[str, Any], base: Mapping[str, int], step: Mapping[str, int]
) -> Derivation:
    """Return the closed form of a user module in the sizes of ``base``, with its other ``settings`` as they are.

    Raises UserCodeError, also for unsupported operations.
    """
    function = load(spec)
    check_settings(spec, function, {**settings, **base})

    def build_at(**sizes):
        module, args, kwargs = build(spec, function, {**settings, **sizes})
        return module.eval(), args, kwargs

    try:
        return derive(build_at, Grid(base, step))
    except CannotBuild as error:
        raise UserCodeError(str(error)) from error
    except UnsupportedError as error:
        raise UserCodeError(f"{error}; a closed form needs every operation to be known") from error


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
    return replace(found, method=f"{found.method}; it does not hold at the preset's own {format_sizes(own)}")


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
                    return Derivation({}, f"counts on a grid, because {reason}", witness=str(error)), Domain()
                pinned, reason = tuple(grid.base), ", and ".join(filter(None, (reason, str(error))))
            except CannotBuild as error:
                raise CannotBuild(f"{error}; points are needed because {reason}" if reason else str(error)) from error


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

    by_kind, number = fit_polynomial(run, inner, SYMBOLIC_LINE if free else LINE)
    if len({frozenset(one.conditions) for one in domains}) > 1:
        raise NotSymbolic(f"{reason}, and what it decides on its way changes with {', '.join(pinned)}")
    for kind, form in by_kind.items():
        if not form.is_polynomial(*map(symbol, grid.base)):
            raise NotSymbolic(f"with symbols its {kind} is {form}, no polynomial")
    conditions = domains[0].conditions if domains else ()
    domain = Domain(conditions, tuple(dict.fromkeys(guard for one in domains for guard in one.layout)))
    points = [point for point in _validation_points(grid) if domain.holds_at(point)][:2]
    validate_at(count, by_kind, points)
    method = "one run with symbols for the sizes"
    if pinned:
        others = ", with symbols for the other sizes" if free else ""
        method = f"an interpolation in {', '.join(inner.base)}, because {reason}{others}: exact through {number} runs"
        method += f" ({inner})"
    where = "; ".join(map(format_sizes, points))
    method += f", confirmed by counting at {where}" if where else "; no point was found to confirm it at"
    if not free:
        method += "; sizes at which the module takes another path are not found in this way"
    bounds = _bounds_above_one(count, grid, by_kind, conditions) if free else ()
    texts = (*map(format_guard, conditions), *bounds)
    return Derivation(by_kind, method, texts, tuple(map(format_guard, domain.layout))), domain


def _bounds_above_one(
    count: Count, grid: Grid, by_kind: Mapping[str, sympy.Expr], conditions: tuple[sympy.Basic, ...]
) -> Iterable[str]:
    """Yield bounds of sizes whose count differs at 1, where torch chooses another memory layout."""
    for name in grid.base:
        point = {**grid.base, name: 1}
        if Domain(conditions).holds_at(point):
            try:
                validate_at(count, by_kind, [point])
            except (NoPolynomial, CannotBuild):
                yield f"{name} >= 2"


def _validation_points(grid: Grid) -> list[dict[str, int]]:
    """Return points outside the grid, then multiples of the base, which keep its divisibility, then its neighbours."""
    multiples = [{name: start * factor for name, start in grid.base.items()} for factor in (7, 11, 4)]
    return grid.outside() + multiples + [grid.point([n] * len(grid.base)) for n in (2, 1)]
