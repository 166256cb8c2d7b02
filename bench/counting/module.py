"""Count a target in the process that runs user code: build it, record it once, and run the tools."""

import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._pytree import tree_map_only

from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.contractions.linalg import Formula, formula_advice
from headcount.bench.counters.base import CounterError
from headcount.bench.counting.agreement import difference, with_active_params, with_stated
from headcount.bench.counting.copies import (
    META,
    FakeWeights,
    devices_of,
    on_meta,
    stored_bytes,
    with_fake_weights,
    with_zeros,
)
from headcount.bench.counting.devices import FAKE, FAKE_AGAIN, Model, count_model
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.counting.run import SIZES_READ, ElementwiseError, reads_inputs
from headcount.bench.counting.tools import ModuleCall
from headcount.bench.errors import Option
from headcount.bench.targets.target import Target, Values, parse_input
from headcount.bench.targets.user_code import Built, UserCodeError, build_target, build_that_runs, run_user_code
from headcount.bench.trace.events import Event, tensors_in
from headcount.formulas.published.expressions import evaluate
from headcount.models.configs.targets import has_closed_form


@contextmanager
def refusals() -> Iterator[None]:
    """Raise UnsupportedError and ElementwiseError as CounterError, with the options that count such a module."""
    try:
        yield
    except UnsupportedError as error:
        by_set = formula_advice((line.operation for line in error.unsupported), Option("formula_set", "linalg"))
        one, without = Option("formula", "OPERATOR=EXPRESSION"), Option("allow_unsupported", True)
        raise CounterError(error.reason, advice=[*by_set, one, " counts one, ", without, " leaves them out"]) from error
    except ElementwiseError as error:
        lines = "; ".join(dict.fromkeys(part.text() for part in error.elementwise))
        reason = f"contractions written elementwise: {lines}"
        raise CounterError(reason, advice=[Option("elementwise", "report"), " names them"]) from error


def count(
    target: Target,
    counters: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    given: Assumptions,
    roots: Mapping[str, str],
    has_costs: bool = True,
) -> Count:
    """Return the count of a target; the arguments are those of counting.count.count.

    Raises UserCodeError and CounterError.
    """

    def run(tried: Target, built: Built) -> tuple[dict[str, Any], Model, Count]:
        options = _prepare(tried, built)
        model = _model(tried, built, options)
        return options, model, count_model(model, counters, tried.device)

    with refusals():
        tried, built, (options, model, found) = build_that_runs(target, run, roots=roots)
        measured, notes = _measure(columns, built, model.call_on, options, found, given) if columns else ({}, [])
    has_sizes = bool(tried.inputs) and not any(isinstance(parse_input(text)[1], Values) for text in tried.inputs)
    if has_sizes and reads_inputs(found.trace):
        notes.append(SIZES_READ.format("ones"))
    if not has_costs:
        found = found.with_values(bytes_moved=None, causal_macs=None, other_flops=None)
    if model.closed_form is not None:
        found = with_active_params(found, model.closed_form)
    with refusals():
        found = with_stated(found, built.module)
    return found.with_values(
        target=target,
        disagreement=_disagreement(target, model, found),
        columns=measured,
        versions={**found.versions, **built.versions},
        absent=built.absent,
        notes=(*built.notes, *notes, *(found.notes or ())),
    )


def _measure(columns: Sequence[str], *run: Any) -> tuple[dict[str, int | Unknown], list[str]]:
    # few counts have columns
    from headcount.bench.counting.columns import measure_columns

    return measure_columns(columns, *run)


def build(target: Target, roots: Mapping[str, str]) -> tuple[Built, dict[str, Any]]:
    """Return what ``target`` names, and the options of RecordedCall that its own are."""
    built = build_target(target, roots=roots)
    return built, _prepare(target, built)


def _prepare(target: Target, built: Built) -> dict[str, Any]:
    """Run lazy parts of what ``target`` names, and return the options of RecordedCall that its own are."""
    run_user_code("reading the module", lambda: _materialize(*built.call), (UserCodeError,))
    names = ("allow_unsupported", "elementwise", "formula_set")
    options = {name: getattr(target, name) for name in names}
    options["formulas"] = {name: build_formula(text) for name, text in target.formulas.items()}
    return {"options": options, "backward": target.backward, "training": target.training}


def _model(target: Target, built: Built, options: Mapping[str, Any]) -> Model:
    """Return a preset or a layer as a model that is built anew on each device, and any other as it is built."""
    if has_closed_form(target.spec):
        return _preset(target, built, options)
    call = built.call
    if target.device not in (None, META):
        call = run_user_code(f"moving the module to {target.device}", lambda: move_call(call, target.device))
    own = "/".join(devices_of(call))

    def call_on(device: str) -> ModuleCall:
        if device == META:
            return on_meta(call)
        if device in (FAKE, FAKE_AGAIN):
            return with_fake_weights(call, FakeWeights(seed=int(device == FAKE_AGAIN)))
        return call if device == own else with_zeros(call)

    return Model(target.spec, call_on, partial(stored_bytes, call), own, options=options)


def _preset(target: Target, built: Built, options: Mapping[str, Any]) -> Model:
    ledger = Case.of(target.spec, target.settings, target.lengths).ledger
    weight = next(built.module.parameters())

    def call_on(device: str) -> ModuleCall:
        is_built = device == weight.device.type
        return built.call if is_built else build_target(replace(target, device=device)).call

    def bytes_of_weights() -> int:
        return weight.itemsize * ledger.params

    return Model(target.spec, call_on, bytes_of_weights, closed_form=ledger, options=options)


def _disagreement(target: Target, model: Model, found: Count) -> str | None:
    """Return in what a count differs from its closed form, which is of dispatched products of a forward pass."""
    if model.closed_form is None or target.backward or target.formulas or found.included:
        return None
    return difference(found, model.closed_form, model.closed_form.params)


def move_call(call: ModuleCall, device: str | None) -> ModuleCall:
    """Return the call of a module with its weights and its inputs on ``device``."""
    module, *inputs = call
    return (module.to(device), *tree_map_only(Tensor, lambda tensor: tensor.to(device), inputs))


def build_formula(text: str) -> Formula:
    """Return the function that gives the MACs of a call by an expression in the sizes of its tensors.

    ``a`` is the number of elements of the first tensor, ``a0`` its first size; ``o`` is the result. Raises
    UserCodeError for a letter that the call does not have, and for a result that is no whole number from 0 on.
    """

    def count(event: Event) -> int:
        sizes: dict[str, int] = {}
        for letter, fact in (*zip(string.ascii_lowercase, event.tensors(), strict=False), ("o", None)):
            fact = fact or next(tensors_in(event.out), None)
            if fact is not None:
                sizes |= {letter: fact.numel, **{f"{letter}{axis}": size for axis, size in enumerate(fact.shape)}}
        try:
            if (macs := evaluate(text, sizes)) < 0:
                raise ValueError(f"it gives {macs}, below 0")
            return macs
        except (ValueError, ZeroDivisionError) as error:
            raise UserCodeError(f"--formula {event.name}={text}: {error}") from error

    return count


def _materialize(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Run a module with lazy parts once, so that they have shapes. Raise UserCodeError if that run fails."""
    if any(isinstance(tensor, UninitializedTensorMixin) for tensor in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            run_user_code("the first run of a module with lazy parts", lambda: module(*args, **kwargs))
