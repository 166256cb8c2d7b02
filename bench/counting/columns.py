"""Measure the columns of a user's module that need a run of their own: a step, a training step, masks with values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import psutil
import torch

from headcount.bench.accounts import ACCOUNTS, Assumptions, NoAccount
from headcount.bench.card_times import TIMES
from headcount.bench.contractions import costs
from headcount.bench.counting.copies import META, FakeWeights, with_fake_weights
from headcount.bench.counting.decode_step import CACHE_ELEMENTS, DecodeStep, decode_step, stated_cache
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.counting.tools import ModuleCall, RecordedCall
from headcount.bench.errors import describe_failure
from headcount.bench.targets.user_code import Built, UserCodeError
from headcount.bench.trace.events import Trace, tensors_in
from headcount.bench.trace.memory import Activations, measure_activations
from headcount.bench.trace.modes import tensors_of
from headcount.models.configs.numbers import whole_bytes

MAX_MASK_BYTES = 8
"""Bytes that a library takes at most for a pair of a query and a key while it makes a mask."""
STATED_CACHE = f"The KV cache is as the module states it ({CACHE_ELEMENTS})."
INPUT_GRADIENTS = "Gradients of floating-point inputs are in the training step, as of a layer in a larger model"


@dataclass
class Runs:
    """A counted module, and its further runs, each made at the first use.

    Attributes:
        built: the module and its inputs.
        call_on: returns them on a device.
        options: those of RecordedCall by which it was counted.
        count: its count.
        given: the assumptions of the columns.
    """

    built: Built
    call_on: Callable[[str], ModuleCall]
    options: Mapping[str, Any]
    count: Count
    given: Assumptions
    bytes_each: dict[str, Fraction] = field(init=False)

    def __post_init__(self) -> None:
        self.bytes_each = {kind: Fraction(size) for kind, size in self.given.bytes_each.items()}

    @property
    def place(self) -> str:
        """Where the module runs: on meta, or where it was counted because it fails or is another there."""
        return self.count.device if self.count.device and self.count.why_there else META

    @property
    def call(self) -> ModuleCall:
        """The module and its inputs in that place."""
        return self.call_on(self.place)

    def run(self, call: ModuleCall, **modes: bool) -> Count:
        """Return the count of another call, in eval mode and without a backward pass where ``modes`` has neither."""
        return RecordedCall(*call, **{**self.options, "backward": False, "training": False, **modes}).headcount

    @property
    def window(self) -> int | None:
        """The window that is given, None where it is the model's own. Raises UserCodeError for another than that."""
        given, own = self.given.window, self.built.window
        if given is not None and own not in (None, given):
            raise UserCodeError(f"--window {given}: the configuration has a window of {own}; --set changes it")
        return None if own is not None else given

    @cached_property
    def step(self) -> DecodeStep:
        """The decode step after which the context is stored."""
        return decode_step(*self.call, self.given.context, self.window)

    @cached_property
    def step_count(self) -> Count:
        """The count of that step."""
        return self.run((self.step.module, (), self.step.kwargs))

    @cached_property
    def forward(self) -> Count:
        """The count of a forward pass: the one that there is, or another where that has a backward pass too."""
        return self.run(self.call, training=self.options["training"]) if self.options["backward"] else self.count

    @cached_property
    def masked(self) -> Count:
        """The count of a forward pass with values of inputs and of what is made from them; weights have no values."""
        return self.run(with_fake_weights(self.built.call, FakeWeights(seed=0)), training=self.options["training"])

    @cached_property
    def training(self) -> Activations:
        """The bytes of activations of a training step."""
        return self.activations(training=True)

    def activations(self, training: bool) -> Activations:
        """Return the bytes of activations of a training step, or of a forward pass."""
        size = None if self.given.has_run_types else self.bytes_each["other"]
        return measure_activations(*self.call, training=training, element_bytes=size)


Measure = Callable[[Runs], int | Fraction]
"""The function that measures a column. It raises NoAccount where there is no value."""


def measures(function: Measure) -> Measure:
    """Register the function with the column of its name. Raises KeyError where there is none."""
    ACCOUNTS[function.__name__].measure = function
    return function


def measure_columns(
    names: Sequence[str],
    built: Built,
    call_on: Callable[[str], ModuleCall],
    options: Mapping[str, Any],
    count: Count,
    given: Assumptions,
) -> tuple[dict[str, int | Unknown], list[str]]:
    """Return the values of the columns of ``names`` that are measured, and sentences about them.

    Raises UserCodeError for a window that is not the model's.
    """
    runs = Runs(built, call_on, options, count, given)
    _ = runs.window
    measured = [name for name in names if name not in TIMES]
    found = {name: _measure(function, runs) for name in measured if (function := ACCOUNTS[name].measure)}
    notes: list[str] = []
    if isinstance(found.get("kv_bytes"), int):
        notes += [STATED_CACHE] if stated_cache(built.call[0]) else _cache_notes(runs.step, runs.bytes_each["cached"])
    if isinstance(found.get("training_macs"), int) and any(x.is_floating_point() for x in tensors_of(built.call[1:])):
        notes.append(INPUT_GRADIENTS)
    return found, notes


def _measure(function: Measure, runs: Runs) -> int | Unknown:
    """Return the value of a column, or why there is none."""
    try:
        value = function(runs)
    except (UserCodeError, NoAccount) as reason:
        return Unknown(str(reason))
    except Exception as error:
        return Unknown(f"a run on {runs.place} {_failure(error)}")
    try:
        return whole_bytes(value)
    except ValueError as reason:
        return Unknown(str(reason))


def _cache_notes(step: DecodeStep, element_bytes: Fraction) -> Iterator[str]:
    """Yield a sentence where the library drops keys and values after a step that has read them."""
    if step.read > step.after:
        read, after = (ceil(elements * element_bytes) for elements in (step.read, step.after))
        yield f"The cache holds {after:,} bytes between steps, fewer than the {read:,} bytes that a step reads."


@measures
def kv_bytes(runs: Runs) -> Fraction:
    """Return the bytes of the cache: what the modules state of their own, else those after the step."""
    stated = stated_cache(runs.built.call[0])
    if stated and (runs.given.context or runs.given.window):
        raise UserCodeError(
            f"{CACHE_ELEMENTS} of a module is of the tokens of its input, without --context and --window"
        )
    return (sum(stated.values()) if stated else runs.step.after) * runs.bytes_each["cached"]


@measures
def kv_token_bytes(runs: Runs) -> Fraction:
    """Return the bytes that the step adds to the cache of one sequence."""
    return (runs.step.after - runs.step.before) // runs.step.batch * runs.bytes_each["cached"]


@measures
def decode_macs(runs: Runs) -> int:
    """Return the MACs of the step."""
    return runs.step_count.macs


@measures
def decode_bytes(runs: Runs) -> Fraction:
    """Return the bytes that the step must move: used weights, the cache, the new keys and values."""
    cached = (runs.step.read + runs.step.new) * runs.bytes_each["cached"]
    return costs.weights_read(runs.step_count.trace) * runs.bytes_each["weight"] + cached


@measures
def training_macs(runs: Runs) -> int:
    """Return the MACs of a training step, without what fused attention and checkpointed layers compute again."""
    count = runs.run(runs.call, backward=True, training=runs.options["training"])
    return count.macs - sum(entry.size for entry in count.ledger if entry.kind.endswith("_recompute"))


@measures
def forward_bytes(runs: Runs) -> Fraction:
    """Return the bytes that any forward pass moves: used weights once, and without tokens input and output once."""
    trace, each = runs.forward.trace, runs.bytes_each
    return costs.weights_read(trace) * each["weight"] + _input_and_output(trace) * each["other"]


@measures
def saved_bytes(runs: Runs) -> int:
    """Return the bytes of activations that the forward pass leaves for the backward pass."""
    return runs.training.saved_bytes


@measures
def peak_training_bytes(runs: Runs) -> int:
    """Return the most bytes that are live at once in a training step."""
    return runs.training.peak_bytes


@measures
def peak_forward_bytes(runs: Runs) -> int:
    """Return the most bytes that are live at once in a forward pass."""
    return runs.activations(training=False).peak_bytes


@measures
def causal_macs(runs: Runs) -> int:
    """Return the MACs of the forward pass without the pairs that masks hide."""
    return _macs_of_masks(runs, None, "a mask is not known")


@measures
def windowed_macs(runs: Runs) -> int:
    """Return the MACs of the forward pass without the pairs that masks or the given window hide."""
    if runs.given.window is None and runs.built.window is None:
        raise NoAccount("attention has no window; --window N gives it one")
    if runs.window is None:
        return causal_macs(runs)
    return _macs_of_masks(runs, runs.window, "attention has a mask that is neither causal nor the window")


def _macs_of_masks(runs: Runs, window: int | None, unknown: str) -> int:
    """Return the forward MACs without the pairs that masks and the window hide. Raises NoAccount if ``unknown``.

    Where the count was without values of masks, a further run has values of inputs and of what is made from them.
    """
    macs = costs.causal_macs(runs.forward.trace, runs.forward.run.by_event, window)
    if macs is not None:
        return macs
    _, *inputs = runs.built.call
    if any(tensor.is_meta for tensor in tensors_of(inputs)):
        raise NoAccount(unknown)
    check_masks_fit(inputs)
    try:
        macs = costs.causal_macs(runs.masked.trace, runs.masked.run.by_event, window)
    except Exception as error:
        raise NoAccount(f"a run with weights that have no values {_failure(error)}") from None
    if macs is None:
        raise NoAccount(unknown)
    return macs


def check_masks_fit(inputs: Any) -> None:
    """Raise NoAccount where masks over all pairs of tokens would take too much memory."""
    sizes = [tensor.shape for tensor in tensors_of(inputs) if not tensor.is_floating_point() and tensor.dim() == 2]
    for batch, tokens in sizes:
        if batch * tokens**2 * MAX_MASK_BYTES > psutil.virtual_memory().available // 2:
            raise NoAccount(f"masks of {tokens:,} x {tokens:,} pairs take more than half of the free memory")


def _input_and_output(trace: Trace) -> int:
    """Return the floating-point elements of inputs and results of a module that takes no tokens."""
    facts = dict.fromkeys(tensors_in((trace.args, tuple(trace.kwargs.values()))))
    is_float = {fact: getattr(torch, fact.dtype).is_floating_point for fact in (*facts, *tensors_in(trace.out))}
    return sum(fact.numel for fact in is_float if is_float[fact]) if all(is_float[fact] for fact in facts) else 0


def _failure(error: Exception) -> str:
    return describe_failure(type(error).__name__, str(error))
