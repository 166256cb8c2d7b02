"""Count one run of a module, with integers for its sizes or with symbols.

With symbols the run is of fake tensors with symbolic shapes, and the count is an expression in the sizes. It holds
where the guards hold: the comparisons of sizes that the run decided, for instance that K <= E, or that h divides D.
"""

import logging
import math
import numbers as abstract
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import sympy
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode, disable_fake_tensor_cache
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.modules import normalization

from headcount.bench.contractions.classify import UnsupportedError, contraction_parts
from headcount.bench.derive.guards import ROUNDED, Domain, simplify_guards
from headcount.bench.errors import first_sentence
from headcount.bench.targets.user_code import UserCodeError
from headcount.bench.trace.names import patched
from headcount.bench.trace.record import record
from headcount.formulas.symbols import format_sizes, symbol

Build = Callable[..., tuple[nn.Module, tuple, dict[str, Any]]]
"""Returns a module, its positional and its keyword inputs, for sizes given by name."""


class CannotBuild(Exception):
    """A module cannot be built or run at a point; the message names it, and ``tried``, the points that a fit needs.

    ``reason``: the message without what to do.
    """

    exit_code = 2

    def __init__(self, reason: str, tried: str = "") -> None:
        super().__init__("; ".join(filter(None, (reason, tried, "--base gives other points", QUOTIENT))))
        self.reason = reason


QUOTIENT = "where a size must divide another, let the function take their quotient"
"""What to do about sizes that no grid of independent steps has."""


class NotSymbolic(Exception):
    """The module cannot be run with symbols; the message names the sizes that it pins, or what it raised.

    ``pinned`` are the sizes that it needs as integers, where it can be run with symbols for the others.
    """

    def __init__(self, reason: str, pinned: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.pinned = pinned


def count_at(
    build: Build, skip_values: Callable[[], AbstractContextManager], point: Mapping[str, int]
) -> dict[str, int]:
    """Return MACs by kind at one point, on tensors without values, or with values where the module needs them."""
    for contexts in ((silence_fake_tensor_log, skip_values, skip_initialisation), ()):
        try:
            with ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context())
                return {kind: int(macs) for kind, macs in _count(build, point).items()}
        except UnsupportedError:
            raise
        except Exception as error:
            failed = error
    reason = _reason(failed) or type(failed).__name__
    raise CannotBuild(f"cannot be built at {format_sizes(point)}: {reason}") from failed


def _count(build: Build, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return MACs by kind of one run: integers, or expressions where sizes are symbols."""
    module, args, kwargs = build(**sizes)
    totals: dict[str, Any] = {}
    for kind, product in contraction_parts(record(module, args, kwargs)):
        totals[kind] = totals.get(kind, 0) + product.macs
    return totals


def count_symbolic(
    build: Build, base: Mapping[str, int], numbers: Mapping[str, int]
) -> tuple[dict[str, sympy.Expr], Domain]:
    """Return MACs by kind of ``build`` with a symbol for each size, and the domain in which they hold.

    Comparisons are decided as for the sizes of ``base``. ``numbers`` are further sizes, passed as integers. Raises
    NotSymbolic, and UnsupportedError for unsupported operations.
    """
    # Sizes of 0 and 1 are symbols too: otherwise torch assumes that every symbol is at least 2, without a guard.
    env = ShapeEnv(specialize_zero_one=False)
    sizes = {name: _size(env, name, hint) for name, hint in base.items()}
    # A symbol that the run pinned has no expression any more.
    names = {size.node.expr: symbol(name) for name, size in sizes.items()}
    try:
        # torch's cache of operations on symbols costs more than the operations.
        with (
            silence_fake_tensor_log(),
            FakeTensorMode(shape_env=env) as mode,
            disable_fake_tensor_cache(mode),
            skip_initialisation(),
            symbols_as_numbers(),
            decompose_matmul(),
        ):
            counted = _count(build, {**sizes, **numbers})
        pinned = {names[old].name: new.xreplace(names) for old, new in env.replacements.items() if old in names}
        if pinned:
            reason = f"the module fixes {', '.join(f'{name} = {new}' for name, new in pinned.items())}"
            raise NotSymbolic(reason, tuple(name for name in base if name in pinned))
        # sympy cannot compare the quotients of some grids of tokens
        domain, exact = simplify_guards(env.guards, names)
    except (UnsupportedError, NotSymbolic):
        raise
    except Exception as error:
        raise NotSymbolic(_plain(error)) from error
    for guard in domain.conditions:
        # With a rounded quotient in it an equation is a range; without, it ties one size to others.
        if isinstance(guard, sympy.Eq) and not guard.has(*ROUNDED):
            sizes = tuple(name for name in base if symbol(name) in guard.free_symbols)
            needs = f"requires {guard.lhs} = {guard.rhs}"
            if guard.atoms(sympy.Float):
                # as 1 / sqrt(d), which scales scores or weights
                needs = f"computes a number from {' and '.join(sizes)}"
            raise NotSymbolic(f"the module {needs}", sizes if len(sizes) == 1 else ())
    forms = {kind: sympy.sympify(macs, strict=True).subs(names) for kind, macs in counted.items()}
    return {kind: sympy.expand(form.xreplace(exact)) for kind, form in forms.items()}, domain


def _size(env: ShapeEnv, name: str, hint: int) -> torch.SymInt:
    source = ConstantSource(name)
    created = env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    # torch finds the hint with the symbol
    return env.create_symintnode(created, hint=None)


def _plain(error: Exception) -> str:
    """Return why a run with symbolic sizes failed, without the names that torch gives its symbols."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GuardOnDataDependentSymNode | DataDependentOutputException):
            return "the module decides by values of tensors"
        cause = cause.__cause__
    raised = _reason(error) if isinstance(error, UserCodeError) else f"{type(error).__name__}: {_reason(error)}"
    return f"with symbols for its sizes {raised}"


def _reason(error: BaseException) -> str:
    """Return the first sentence of an error's text, without its full stop."""
    return first_sentence(str(error)).rstrip(".")


def silence_fake_tensor_log() -> AbstractContextManager:
    """Return a context that disables the log of fake tensors, whose failures are handled here."""
    return patched((logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True))


def decompose_matmul() -> AbstractContextManager:
    """Return a context in which torch before 2.13 decomposes matmul and linear, which need integer sizes there."""
    return nullcontext() if torch.__version__ >= (2, 13) else enable_python_dispatcher()


def symbols_as_numbers() -> AbstractContextManager:
    """Return a context in which norms take a symbol for their width, and math's functions keep symbols unpinned."""
    functions = {name: getattr(torch, f"_sym_{name}", None) for name in dir(math)}
    replaced = [(math, name, _for_symbols(getattr(math, name), f)) for name, f in functions.items() if f]
    replaced.append((normalization, "numbers", SimpleNamespace(Integral=(abstract.Integral, torch.SymInt))))
    return patched(*replaced)


def _for_symbols(plain: Callable, symbolic: Callable) -> Callable:
    return lambda x: symbolic(x) if isinstance(x, torch.SymInt | torch.SymFloat) else plain(x)


def skip_initialisation() -> AbstractContextManager:
    """Return a context that leaves weights uninitialised: values do not matter, and drawing them needs integers."""
    functions = [(nn.init, name) for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")]
    methods = [
        (cls, name)
        for cls in vars(nn.modules).values()
        if isinstance(cls, type) and issubclass(cls, nn.Module)
        for name in ("reset_parameters", "_reset_parameters")
        if name in vars(cls)
    ]
    return patched(*((owner, name, _unchanged) for owner, name in (*functions, *methods)))


def _unchanged(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return tensor
