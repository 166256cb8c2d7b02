"""One run of a module with symbols for sizes: fake tensors with symbolic shapes under the recorder.

The count is then an expression in the sizes. It holds where the guards hold: the comparisons of sizes that the
run decided on its way, for instance that K <= E, or that h divides D.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import nn
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from bench.right.count import UncountedError, right_parts
from bench.trace.record import record
from bench.turning import symbol

Build = Callable[..., tuple[nn.Module, tuple, dict[str, Any]]]
"""A module, its inputs by position and by keyword, for sizes given by name."""


class NotSymbolic(Exception):
    """The module cannot be run with symbols; the message says which size it pins, or what it raised."""


@dataclass(frozen=True)
class SymbolicCount:
    """MACs by kind as expressions in the sizes, and the guards under which they hold."""

    by_kind: Mapping[str, sympy.Expr]
    guards: tuple[sympy.Basic, ...]

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether every guard holds for these sizes."""
        values = {symbol(name): size for name, size in sizes.items()}
        return all(guard.subs(values) == sympy.true for guard in self.guards)


def run(build: Build, base: Mapping[str, int]) -> SymbolicCount:
    """The count of ``build`` with a symbol for each size, which decides comparisons as ``base`` does.

    Raises NotSymbolic, and UncountedError for operations that nobody knows.
    """
    env = ShapeEnv()
    sizes = {name: _size(env, name, hint) for name, hint in base.items()}
    # A symbol that the run pinned has no expression of its own any more.
    names = {size.node.expr: symbol(name) for name, size in sizes.items()}
    try:
        with quiet(), FakeTensorMode(shape_env=env), no_initialisation():
            module, args, kwargs = build(**sizes)
            parts = right_parts(record(module, args, kwargs))
    except UncountedError:
        raise
    except Exception as error:
        raise NotSymbolic(f"with symbols it raises {type(error).__name__}: {_first_line(error)}") from error
    pinned = [f"{names[old]} = {new}" for old, new in env.replacements.items() if old in names]
    if pinned:
        raise NotSymbolic(f"it pins {', '.join(pinned)}")
    guards = [guard.expr.subs(names) for guard in env.guards]
    exact = _exact_quotients(guards)
    by_kind: dict[str, sympy.Expr] = {}
    for kind, product in parts:
        expression = sympy.sympify(getattr(product.macs, "node", None) and product.macs.node.expr or product.macs)
        by_kind[kind] = by_kind.get(kind, sympy.Integer(0)) + expression.subs(names).xreplace(exact)
    left = tuple(dict.fromkeys(g for g in (_simpler(guard, exact) for guard in guards) if g != sympy.true))
    for guard in left:
        # With a rounded quotient in it an equation is a range; without, it ties one size to others.
        if isinstance(guard, sympy.Eq) and not guard.has(FloorDiv, Mod, PythonMod):
            raise NotSymbolic(f"it needs {guard.lhs} = {guard.rhs}")
    return SymbolicCount({kind: sympy.expand(total) for kind, total in by_kind.items()}, left)


def _size(env: ShapeEnv, name: str, hint: int) -> torch.SymInt:
    source = ConstantSource(name)
    made = env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    return env.create_symintnode(made, hint=hint, source=source)


def _exact_quotients(guards: list[sympy.Basic]) -> dict[sympy.Basic, sympy.Expr]:
    """a // b as a / b wherever a guard says that b divides a."""
    divides = [
        side.args for guard in guards if isinstance(guard, sympy.Eq) and guard.rhs == 0 for side in [guard.lhs]
        if isinstance(side, Mod | PythonMod)
    ]  # fmt: skip
    return {FloorDiv(a, b): a / b for a, b in divides}


def _simpler(guard: sympy.Basic, exact: Mapping[sympy.Basic, sympy.Expr]) -> sympy.Basic:
    """The guard with exact quotients; true where that makes it an identity, or sizes are at least 1 anyway."""
    guard = guard.xreplace(dict(exact))
    if isinstance(guard, sympy.Rel) and not guard.has(FloorDiv, Mod, PythonMod):
        difference = sympy.expand(guard.lhs - guard.rhs)
        return guard.func(difference, 0) if difference.is_number else guard
    return guard


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]


@contextmanager
def quiet() -> Iterator[None]:
    """Fake tensors log what they cannot do; here another way is taken."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def no_initialisation() -> Iterator[None]:
    """Weights stay as they are made: their values do not matter, and drawing them asks for sizes as numbers."""
    functions = [(nn.init, name) for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")]
    methods = [
        (cls, name)
        for cls in vars(nn.modules).values()
        if isinstance(cls, type) and issubclass(cls, nn.Module)
        for name in ("reset_parameters", "_reset_parameters")
        if name in vars(cls)
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name in (*functions, *methods)]
    try:
        for owner, name, _ in saved:
            setattr(owner, name, _unchanged)
        yield
    finally:
        for owner, name, original in saved:
            setattr(owner, name, original)


def _unchanged(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return tensor
