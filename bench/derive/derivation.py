"""Derive the closed form of a module from runs: with symbols in one run, else from counts on a grid."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import sympy
from torch._subclasses.fake_tensor import FakeTensorMode

from headcount.bench.contractions.count import UnsupportedError
from headcount.bench.counters.run_context import one_thread
from headcount.bench.derive.guards import format_guard
from headcount.bench.derive.interpolate import (
    Count,
    Grid,
    NoPolynomial,
    fit_polynomial,
    format_point,
    interpolate,
    validate_at,
)  # fmt: skip
from headcount.bench.derive.result import Derivation
from headcount.bench.derive.symbolic import Build, CannotBuild, NotSymbolic, SymbolicCount, count_at, count_symbolic
from headcount.bench.isolated.user_code import UserCodeError, build, check_settings, load
from headcount.formulas.symbols import symbol

SYMBOLIC_LINE = 5
"""Points along an integer size while others are symbols: four fix the degree, one validates it."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the derivation of a user module, for bench.isolated.child.

    ``request`` holds spec, settings, base and step. Raises UserCodeError, also for unsupported operations.
    """
    spec, given = request["spec"], request["settings"]
    function = load(spec)
    check_settings(spec, function, {**given, **request["base"]})

    def build_at(**sizes):
        module, args, kwargs = build(spec, function, {**given, **sizes})
        return module.eval(), args, kwargs

    try:
        return derive(build_at, Grid(request["base"], request["step"])).as_record()
    except CannotBuild as error:
        raise UserCodeError(str(error)) from error
    except UnsupportedError as error:
        raise UserCodeError(f"{error}; a closed form needs every operation to be known") from error


def derive(build: Build, grid: Grid, skip_values: Callable[[], AbstractContextManager] = FakeTensorMode) -> Derivation:
    """Return the closed form of the module of ``build`` in the sizes of ``grid``.

    ``skip_values``: the context in which tensors of integer sizes have no values; nullcontext for a module on meta.
    Raises CannotBuild for a point where it cannot be built, and UnsupportedError for unsupported operations.
    """
    count = partial(count_at, build, skip_values)
    with one_thread():
        try:
            return _symbolic(build, count, grid)
        except NotSymbolic as error:
            reason = str(error)
        try:
            by_kind, points, confirmed_at = interpolate(count, grid)
        except NoPolynomial as error:
            return Derivation({}, f"counts on a grid, because {reason}", witness=str(error))
        except CannotBuild as error:
            raise CannotBuild(f"{error}; points are needed because {reason}") from error
    method = (
        f"an interpolation, because {reason}: exact through {points} counted points ({_format_grid(grid)})"
        f"{_format_confirmation(confirmed_at)}; sizes at which the module takes another path are not found in this way"
    )
    return Derivation(by_kind, method)


def _format_grid(grid: Grid) -> str:
    return ", ".join(f"{name} = {grid.base[name]} + {grid.step[name]}n" for name in grid.base)


def _format_confirmation(points: Iterable[Mapping[str, int]]) -> str:
    where = "; ".join(format_point(point) for point in points)
    return f", confirmed by counting at {where}" if where else "; no point was found to confirm it at"


def _symbolic(build: Build, count: Count, grid: Grid) -> Derivation:
    """Use symbols for all sizes but the pinned ones, which go on the grid; raise NotSymbolic where none is left."""
    pinned: tuple[str, ...] = ()
    reason = "no size is left for a symbol"
    while len(pinned) < len(grid.base):
        try:
            return _with_symbols(build, count, grid, pinned, reason)
        except NotSymbolic as error:
            if not error.pinned:
                raise
            pinned, reason = pinned + error.pinned, str(error)
    raise NotSymbolic(reason)


def _with_symbols(build: Build, count: Count, grid: Grid, pinned: tuple[str, ...], reason: str) -> Derivation:
    free = {name: start for name, start in grid.base.items() if name not in pinned}
    inner = Grid({name: grid.base[name] for name in pinned}, {name: grid.step[name] for name in pinned})
    runs: list[SymbolicCount] = []

    def symbolic(point: Mapping[str, int]) -> Mapping[str, sympy.Expr]:
        runs.append(count_symbolic(build, free, point))
        return runs[-1].by_kind

    try:
        by_kind, number = fit_polynomial(symbolic, inner, SYMBOLIC_LINE)
    except NoPolynomial as error:
        raise NotSymbolic(f"{reason}, and {error}") from error
    guards = runs[0].guards
    if any(set(one.guards) != set(guards) for one in runs):
        raise NotSymbolic(f"{reason}, and what it decides on its way changes with {', '.join(pinned)}")
    layout = tuple(dict.fromkeys(guard for one in runs for guard in one.layout))
    symbols = [symbol(name) for name in grid.base]
    uneven = [kind for kind, e in by_kind.items() if not e.is_polynomial(*symbols)]
    if uneven:
        raise NotSymbolic(f"with symbols its {uneven[0]} is {by_kind[uneven[0]]}, no polynomial")
    found = SymbolicCount(by_kind, guards, layout)
    points = tuple(point for point in _validation_points(grid) if found.holds_at(point))[:2]
    try:
        validate_at(count, by_kind, points)
    except NoPolynomial as error:
        raise NotSymbolic(f"the run with symbols and counting differ ({error})") from error
    method = "one run with symbols for the sizes"
    if pinned:
        method = (
            f"an interpolation in {', '.join(pinned)}, because {reason}, with symbols for the other sizes: exact "
            f"through {number} runs ({_format_grid(inner)})"
        )
    method += _format_confirmation(points)
    domain, layout = (tuple(format_guard(guard) for guard in some) for some in (guards, layout))
    return Derivation(by_kind, method, domain + _bounds_above_one(count, grid, found), layout)


def _bounds_above_one(count: Count, grid: Grid, found: SymbolicCount) -> tuple[str, ...]:
    """Return bounds of sizes whose count differs at 1, where torch chooses another memory layout."""
    bounds = []
    for name in grid.base:
        point = {**grid.base, name: 1}
        if replace(found, layout=()).holds_at(point):
            try:
                validate_at(count, found.by_kind, (point,))
            except (NoPolynomial, CannotBuild):
                bounds.append(f"{name} >= 2")
    return tuple(bounds)


def _validation_points(grid: Grid) -> list[dict[str, int]]:
    """Return points outside the grid, then multiples of the base, which keep its divisibility, then its neighbours."""
    multiples = [{name: start * factor for name, start in grid.base.items()} for factor in (7, 11, 4)]
    return grid.outside() + multiples + [grid.point(dict.fromkeys(grid.base, n)) for n in (2, 1)]
