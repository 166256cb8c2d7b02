"""Count a target in the process that runs user code: its device, the tools' devices, and columns of further runs."""

import copy
import logging
import string
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from math import ceil
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from headcount.bench.case import Case
from headcount.bench.contractions.audit import merge_equal_lines
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.contractions.costs import causal_macs, weights_read
from headcount.bench.contractions.linalg import Formula, formula_advice
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.counters.base import CounterError, ToolCount, too_large_for_cpu
from headcount.bench.counters.run_context import one_thread
from headcount.bench.counting.case import count_case
from headcount.bench.counting.contractions import ElementwiseError
from headcount.bench.counting.count import ACTIVATIONS, DECODING, MASKED
from headcount.bench.counting.decode_step import DecodeStep, decode_step
from headcount.bench.counting.result import Count
from headcount.bench.counting.tools import ModuleCall, read
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import LONGEST, Built, UserCodeError, build_target, run_user_code
from headcount.bench.trace.events import Event, Trace, tensors_in
from headcount.bench.trace.memory import measure_activations
from headcount.bench.trace.modes import tensors_of
from headcount.formulas.published.expressions import evaluate
from headcount.models.configs.numbers import whole_bytes
from headcount.models.configs.targets import has_closed_form

META, HEADCOUNT = "meta", "headcount"
FAKE = "meta, with the inputs' values"
"""Device of a count with fake weights: they have a shape and a type, as on meta, and inputs have values."""


class NotCounted(Exception):
    """A module with contractions that have no rule or may not be left out."""

    exit_code = CounterError.exit_code


@contextmanager
def refusals() -> Iterator[None]:
    """Raise UnsupportedError and ElementwiseError as NotCounted, with the options that count such a module."""
    try:
        yield
    except UnsupportedError as error:
        advice = formula_advice((line.operation for line in error.unsupported), "--formula-set {}")
        hint = f"{advice}--formula OPERATOR=EXPRESSION counts one, --allow-unsupported leaves them out"
        lines = "; ".join(line.text() for line in merge_equal_lines(error.unsupported))
        raise NotCounted(f"unsupported operations, which may hold products: {lines} ({hint})") from error
    except ElementwiseError as error:
        lines = "; ".join(dict.fromkeys(part.text() for part in error.elementwise))
        raise NotCounted(f"contractions written elementwise: {lines} (--elementwise report names them)") from error


def count(target: Target, counters: Sequence[str] = (), **options: Any) -> Count:
    """Return the count of a target; the arguments are those of counting.count.count_module.

    Raises UserCodeError and NotCounted.
    """
    with refusals():
        return _count(target, counters, **options)


def _count(
    target: Target,
    counters: Sequence[str],
    *,
    columns: Sequence[str],
    bytes_each: Mapping[str, int | Fraction],
    context: int | None,
    window: int | None,
    roots: Mapping[str, str],
) -> Count:
    built, run = build_and_run(target, roots)
    call = built.call
    # the other tools run where their users run them, unless a device is given
    others = [] if target.device else [name for name in counters if name != HEADCOUNT]
    with one_thread():
        first = partial(run, counters=[name for name in counters if name not in others])
        found, device, why = _run_on_device(first, call, target.device)
    notes = [*built.notes]
    if why and device == META:
        notes.append(why)
        why = None
    reported = {one.counter: replace(one, device=device) for one in found.tools}
    if others and has_closed_form(target.spec):
        # as in tables and grids
        case = Case.of(target.spec, target.settings, target.lengths)
        reported |= {one.counter: one for one in count_case(case, others, causes=True).tools}
    elif others:
        exact = found.macs
        reported |= {one.counter: one for one in _read_tools(partial(run, counters=others), call, exact, device)}
    measured, more = _measure_columns(target, columns, built, run, found, bytes_each, context, window)
    return found.with_values(
        target=target,
        device=device,
        why_there=why,
        tools=tuple(reported[name] for name in counters),
        columns=measured,
        versions={**found.versions, **built.versions},
        notes=(*notes, *more, *found.notes),
    )


def _measure_columns(
    target: Target,
    columns: Sequence[str],
    built: Built,
    run: Callable[..., Count],
    count: Count,
    bytes_each: Mapping[str, int | Fraction],
    context: int | None,
    window: int | None,
) -> tuple[dict[str, int | str], list[str]]:
    """Return the columns that need a further run, and sentences about them."""
    call, window = built.call, _window(window, built.window)
    each = {kind: Fraction(size) for kind, size in bytes_each.items()}
    step = cache(lambda: decode_step(*_meta_call(call), context, window))
    forward = None if target.backward else count.trace
    found: dict[str, int | str] = {}
    for name in columns:
        if name in MASKED:
            found[name] = _measure_masked(name, count, run, call, window, built.window)
        else:
            found[name] = _whole(_measure(name, run, call, step, each, forward))
    notes: list[str] = []
    if type(found.get("kv_bytes")) is int:
        notes += _cache_notes(step(), each["cached"])
    if type(found.get("training_macs")) is int and any(x.is_floating_point() for x in tensors_of(call[1:])):
        notes.append(_INPUT_GRADIENTS)
    return found, notes


def build_and_run(target: Target, roots: Mapping[str, str]) -> tuple[Built, Callable[..., Count]]:
    """Return what ``target`` names, and the function that counts a call with its options."""
    built = build_target(target, roots=roots)
    run_user_code("reading the module", lambda: _materialize(*built.call), (UserCodeError,))
    formulas = {name: build_formula(text) for name, text in target.formulas.items()}
    options = {name: getattr(target, name) for name in ("allow_unsupported", "elementwise", "formula_set", "backward")}
    return built, partial(read, label=target.spec, formulas=formulas, **options)


_INPUT_GRADIENTS = "Gradients of floating-point inputs are in the training step, as of a layer in a larger model"


def _measure(
    name: str,
    run: Callable[..., Count],
    call: ModuleCall,
    step: Callable[[], DecodeStep],
    each: Mapping[str, Fraction],
    forward: Trace | None,
) -> int | Fraction | str:
    """Return the value of a column that needs a further run, on meta, or the reason why there is none.

    ``forward``: the run that was counted, where it was of the forward pass alone.
    """
    try:
        if name in DECODING:
            found = step()
            new = found.after - found.before
            if name in ("kv_bytes", "kv_token_bytes"):
                return (found.after if name == "kv_bytes" else new // found.batch) * each["cached"]
            count = run(found.module, (), found.kwargs, counters=())
            if name == "decode_macs":
                return count.macs
            return weights_read(count.trace) * each["weight"] + (found.read + found.new) * each["cached"]
        if name == "training_macs":
            count = run(*_meta_call(call), counters=(), backward=True)
            return count.macs - sum(entry.size for entry in count.ledger if entry.kind.endswith("_recompute"))
        if name == "forward_bytes":
            trace = forward or run(*_meta_call(call), counters=()).trace
            return weights_read(trace) * each["weight"] + _input_and_output(trace) * each["other"]
        field, training = ACTIVATIONS[name]
        options = {"training": training, "element_bytes": each["other"]}
        return getattr(measure_activations(*_meta_call(call), **options), field)
    except UserCodeError as error:
        return str(error)
    except Exception as error:
        return f"a run on meta raised {_first_line(error)}"


def _window(given: int | None, own: int | None) -> int | None:
    """Return the window that is given, None where it is the model's own. Raise UserCodeError for another than that."""
    if given is not None and own not in (None, given):
        raise UserCodeError(f"--window {given}: the configuration has a window of {own}; --set changes it")
    return None if own is not None else given


def _cache_notes(step: DecodeStep, element_bytes: Fraction) -> Iterator[str]:
    """Yield a sentence where the library drops keys and values after a step that has read them."""
    if step.read > step.after:
        read, after = (ceil(elements * element_bytes) for elements in (step.read, step.after))
        yield f"The cache holds {after:,} bytes between steps, fewer than the {read:,} bytes that a step reads"


MAX_MASK_BYTES = 8
"""Bytes that a library takes at most for a pair of a query and a key while it makes a mask."""


def _measure_masked(
    name: str,
    count: Count,
    run: Callable[..., Count],
    call: ModuleCall,
    window: int | None,
    own: int | None,
) -> int | str:
    """Return the MACs without the pairs that masks hide, or the reason why they are not known.

    Where ``count`` was without values of masks, a further run has values of inputs and of what is made from them.
    ``window`` is the given one, and ``own`` the model's, whose masks have it.
    """
    if name == "windowed_macs" and window is None and own is None:
        return "attention has no window; --window N gives it one"
    window = window if name == "windowed_macs" else None
    unknown = "a mask is not known" if window is None else "attention has a mask that is neither causal nor the window"
    macs = causal_macs(count.trace, count.run.by_event, window)
    _, *inputs = call
    if macs is not None or any(tensor.is_meta for tensor in tensors_of(inputs)):
        return unknown if macs is None else macs
    if reason := _masks_too_large(inputs):
        return reason
    try:
        found = run(*_fake_call(call, _FakeWeights(seed=0)), counters=())
        macs = causal_macs(found.trace, found.run.by_event, window)
    except Exception as error:
        return f"a run with weights that have no values raised {_first_line(error)}"
    return unknown if macs is None else macs


def _masks_too_large(inputs: Any) -> str | None:
    """Return why masks over all pairs of tokens are not made; None where they are."""
    sizes = [tensor.shape for tensor in tensors_of(inputs) if not tensor.is_floating_point() and tensor.dim() == 2]
    for batch, tokens in sizes:
        if batch * tokens**2 * MAX_MASK_BYTES > psutil.virtual_memory().available // 2:
            return f"masks of {tokens:,} x {tokens:,} pairs take more than half of the free memory"
    return None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:LONGEST]}"


def _whole(value: int | Fraction | str) -> int | str:
    """Return a value as an integer, or the reason why there is none."""
    try:
        return value if isinstance(value, str) else whole_bytes(value)
    except ValueError as reason:
        return str(reason)


def _input_and_output(trace: Trace) -> int:
    """Return the floating-point elements of inputs and results of a module that takes no tokens."""
    facts = dict.fromkeys(tensors_in((trace.args, tuple(trace.kwargs.values()))))
    is_float = {fact: getattr(torch, fact.dtype).is_floating_point for fact in (*facts, *tensors_in(trace.out))}
    return sum(fact.numel for fact in is_float if is_float[fact]) if all(is_float[fact] for fact in facts) else 0


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


FINAL = (UnsupportedError, ElementwiseError, UserCodeError)
"""Errors that are the same on every device."""
MAX_CHECKED_MACS = 10**9
"""A model up to this size runs once more on its own device, to check that both counts are equal."""


def _run_on_device(run: Callable[..., Count], call: ModuleCall, device: str | None) -> tuple[Count, str, str | None]:
    """Return the counts, their device, and the reason where that is not meta, or why the module fails on its own.

    The default is meta; where that fails, or counts a small module differently, the device of the module's tensors. A
    module without weights whose forward reads values of its inputs is counted with fake weights and these inputs.
    """
    own = "/".join(_devices(call))
    if device not in (None, META):
        module, *inputs = call
        moved = run_user_code(
            f"moving the module to {device}",
            lambda: (module.to(device), *tree_map_only(Tensor, lambda tensor: tensor.to(device), inputs)),
        )
        return _run_on_own(run, moved, device), device, None
    try:
        found = run_user_code("a run on meta", lambda: run(*_meta_call(call)), FINAL)
    except UserCodeError as error:
        if device == META or own == META:
            raise
        if META in own:
            return _run_on_fake(run, call), FAKE, str(error)
        return _run_on_own(run, call, own), own, str(error)
    if device == META or META in own or found.macs > MAX_CHECKED_MACS:
        return found, META, None
    try:
        there = run_user_code(f"a run on {own}", lambda: run(*call, counters=()))
    except UserCodeError as error:
        return found, META, f"Not verified: {str(error).rstrip('.')}."
    if (there.dispatched, there.with_elementwise) == (found.dispatched, found.with_elementwise):
        return found, META, None
    return _run_on_own(run, call, own), own, f"it counts {found.macs:,} there and {there.macs:,} on {own}"


def _run_on_own(run: Callable[..., Count], call: ModuleCall, where: str) -> Count:
    """Return the counts on ``where``, the device of the call's tensors. Raise UserCodeError where it does not run."""
    module, args, kwargs = call
    try:
        return run(module, args, kwargs)
    except BaseException:
        with torch.no_grad():
            run_user_code(f"the module's forward pass on {where}", lambda: module.eval()(*args, **kwargs))
        # the module runs, so headcount is at fault: its own traceback is printed
        raise


def _run_on_fake(run: Callable[..., Count], call: ModuleCall) -> Count:
    """Return the counts with weights that have no values and inputs that do. Raise UserCodeError where it fails.

    Where numbers are drawn, a note says whether the count is the same with others.
    """
    reason = "a run with weights that have no values (--device cpu gives them some)"

    def counted() -> Count:
        found, has_drawn = _count_fake(run, call, seed=0)
        if not has_drawn or not any(base(event.name) in _READS for event in found.trace.operations()):
            return found
        other, _ = _count_fake(partial(run, counters=()), call, seed=1)
        return found.with_values(notes=(*found.notes, _drawn_note(found.macs, other.macs)))

    return run_user_code(reason, counted, FINAL)


def _count_fake(run: Callable[..., Count], call: ModuleCall, seed: int) -> tuple[Count, bool]:
    """Return the counts, and whether numbers were drawn for them."""
    mode = _FakeWeights(seed)
    return run(*_fake_call(call, mode)), mode.has_drawn


_READS = frozenset("_local_scalar_dense nonzero masked_select index unique_consecutive _unique2 bincount".split())
"""Operations by which values decide what a run computes."""


def _drawn_note(macs: int, others: int) -> str:
    drawn = "Values that the model computes and reads, as a router's choice, are drawn"
    return f"{drawn}: {'the MACs are the same' if macs == others else f'{others:,} MACs'} with others"


_INDEXED_BY_MASK = (
    torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor, torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default, torch.ops.aten._unsafe_index_put.default,
)  # fmt: skip


class _FakeWeights(fake_tensor.FakeTensorMode):
    """Run operations on tensors without values, but take the positions that a mask with values selects.

    What makes integers of numbers without values, as a router that chooses experts, gets numbers that are drawn
    between 0 and 1; ``has_drawn`` says so. Integers have values, so that code may read how many tokens an expert has.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.has_drawn = False
        self._generator = torch.Generator().manual_seed(seed)

    def dispatch(self, func, types, args=(), kwargs=None):
        if func in _INDEXED_BY_MASK:
            tensor, indices, *rest = args
            args = (tensor, _positions(indices), *rest)
        try:
            out = super().dispatch(func, types, args, kwargs or {})
        except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException):
            if not _without_values((args, kwargs)):
                raise
            return self._draw(func, args, kwargs or {})
        has_integers = any(not leaf.is_floating_point() for leaf in tensors_of(out))
        return self._draw(func, args, kwargs or {}) if has_integers and _without_values((args, kwargs)) else out

    def _draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation on drawn numbers: integers with their values, other tensors without."""
        self.has_drawn = True

        def draw(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, fake_tensor.FakeTensor):
                return tensor
            return torch.rand(tensor.shape, dtype=tensor.dtype, generator=self._generator)

        with _disable_current_modes():
            out = func(*tree_map_only(Tensor, draw, args), **tree_map_only(Tensor, draw, kwargs))
        return tree_map_only(Tensor, lambda one: self.without_values(one) if one.is_floating_point() else one, out)

    def without_values(self, tensor: Tensor) -> fake_tensor.FakeTensor:
        """Return a tensor of this mode that says that it is on the CPU."""
        return fake_tensor.FakeTensor(self, tensor.to(META), torch.device("cpu"))


def _without_values(inputs: Any) -> bool:
    """Return whether tensors of ``inputs`` have no values, and all of these are numbers that can be drawn."""
    fakes = [tensor for tensor in tensors_of(inputs) if isinstance(tensor, fake_tensor.FakeTensor)]
    return bool(fakes) and all(tensor.is_floating_point() for tensor in fakes)


def _positions(indices: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Return the indices with the positions of their True elements in place of masks with values."""
    found: list[Tensor | None] = []
    for index in indices:
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        if is_mask and not index.is_meta and not isinstance(index, fake_tensor.FakeTensor):
            with _disable_current_modes():
                found += index.nonzero().unbind(-1)
        else:
            found.append(index)
    return found


def _fake_call(call: ModuleCall, mode: _FakeWeights) -> ModuleCall:
    """Return a copy of a module whose weights have no values, and its inputs, which have."""
    module, args, kwargs = call
    # the mode is not entered: tensors made in forward have values
    fake = copy_module(module, mode.without_values)
    # torch logs the traceback of what is reported here, and its copies of fake buffers warn
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
    return fake, args, kwargs


def _read_tools(run: Callable[..., Count], call: ModuleCall, exact: int, device: str) -> Iterator[ToolCount]:
    """Yield what each tool reports where its users run it: on the module's device, or on the CPU for one on meta.

    On meta, with the reason, where the module is too large for the CPU or does not run there; ``exact`` is headcount's
    count and ``device`` where headcount has counted it.
    """
    own = _devices(call)
    where = "/".join(device for device in own if device != META) or "cpu"
    without_values = device in (META, FAKE)
    why = too_large_for_cpu(exact, _stored_bytes(call)) if without_values and where == "cpu" else None
    if why is None:
        try:
            there = convert_call(call, _zeros) if META in own else call
            found = run_user_code(f"a run on {where}", lambda: run(*there, exact=exact), FINAL)
        except UserCodeError as error:
            if not without_values:
                raise
            why = str(error)
    if why is not None:
        where, found = META, run(*_meta_call(call), exact=exact)
    for count in found.tools:
        yield replace(count, device=where, why_there=why)


def _devices(call: ModuleCall) -> list[str]:
    """Return the types of the devices of a module's parameters and inputs; the CPU where there are none."""
    module, *inputs = call
    return sorted({tensor.device.type for tensor in (*module.parameters(), *tensors_of(inputs))} or {"cpu"})


def _stored_bytes(call: ModuleCall) -> int:
    """Return the bytes of weights, buffers and inputs, shared ones once."""
    module, *inputs = call
    stored = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers(), *tensors_of(inputs))}
    return sum(tensor.nbytes for tensor in stored.values())


def _meta_call(call: ModuleCall) -> ModuleCall:
    return convert_call(call, lambda tensor: tensor.to(META))


def convert_call(call: ModuleCall, convert: Callable[[Tensor], Tensor]) -> ModuleCall:
    """Return a copy of a module, as copy_module makes it, and its inputs, with converted tensors."""
    module, *inputs = call
    return copy_module(module, convert), *tree_map_only(Tensor, convert, inputs)


def copy_module(module: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a copy with converted tensors, and the same shared and the same frozen parameters."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(convert(parameter.detach()), parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = convert(buffer.detach())
    # the weights of torch.nn.utils.weight_norm, which are computed: Python copies leaves only
    for value in (value for part in module.modules() for value in vars(part).values()):
        if isinstance(value, Tensor) and not value.is_leaf:
            memo[id(value)] = convert(value.detach()).requires_grad_(value.requires_grad)
    copied = copy.deepcopy(module, memo)
    if not isinstance(copied, nn.Module):
        raise TypeError(f"the __deepcopy__ of {type(module).__name__} returns no module, but {type(copied).__name__}")
    return copied


def _zeros(tensor: Tensor) -> Tensor:
    """Return a tensor of meta as zeros on the CPU, and any other as it is."""
    return torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor
