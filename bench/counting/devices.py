"""Count a model on the devices where the users of each tool run it: one policy, with its reason where it is another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from headcount.bench.case import Case
from headcount.bench.contractions.classify import UnsupportedError
from headcount.bench.contractions.zero_mac_ops import base
from headcount.bench.counters import registry
from headcount.bench.counters.base import ToolCount, too_large_for_cpu
from headcount.bench.counters.run_context import one_thread
from headcount.bench.counting.copies import META
from headcount.bench.counting.result import Count, Parameter
from headcount.bench.counting.run import READS, ElementwiseError, inputs_of, may_read_weights
from headcount.bench.counting.tools import ModuleCall, RecordedCall
from headcount.bench.errors import Option
from headcount.bench.targets.user_code import UserCodeError, run_user_code
from headcount.formulas.ledger import Ledger
from headcount.models.build import build_call

HEADCOUNT = "headcount"
FAKE = "meta, with the inputs' values"
"""Device of a count with fake weights: they have a shape and a type, as on meta, and inputs have values."""
FAKE_AGAIN = f"{FAKE}, others drawn"
"""The same where numbers that the model reads are drawn again."""
FINAL = (UnsupportedError, ElementwiseError, UserCodeError)
"""Errors that are the same on every device."""
MAX_CHECKED_MACS = 10**9
"""A model up to this size runs once more on its own device, to check that both counts are equal."""


@dataclass(frozen=True)
class Model:
    """A model that is counted on one device after the other.

    Attributes:
        label: what errors name.
        call_on: returns the module and its inputs on a device.
        stored_bytes: returns those of its weights and inputs on the CPU.
        device: that of its tensors; None of a model that is built anew on each device.
        closed_form: its ledger by a formula; None where there is none.
        options: those of RecordedCall.
    """

    label: str
    call_on: Callable[[str], ModuleCall]
    stored_bytes: Callable[[], int]
    device: str | None = None
    closed_form: Ledger | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def on(self, device: str, tools: Sequence[ModuleType]) -> RecordedCall:
        """Return the call on a device, which ``tools`` may count; it is recorded at the first use."""
        return RecordedCall(*self.call_on(device), tools, self.label, is_own=self.device is None, **self.options)

    def record(self, device: str, tools: Sequence[ModuleType]) -> RecordedCall:
        """Return the recorded call on a device. Raises UserCodeError where the module does not run there, and FINAL."""

        def run() -> RecordedCall:
            call = self.on(device, tools)
            _ = call.headcount
            return call

        if device not in (FAKE, FAKE_AGAIN):
            return run_user_code(f"a run on {device}", run, FINAL)
        try:
            return run_user_code("a run with weights that have no values", run, FINAL)
        except UserCodeError as error:
            advice = _advice(self.call_on(META))
            raise UserCodeError(error.reason.rstrip("."), advice=advice, trace=error.trace) from error


def _advice(call: ModuleCall) -> list[object]:
    """Return the inputs of a module that does not run, and those that it takes, as words of an error."""
    module, args, kwargs = call
    names = ", ".join(name for name in signature(module.forward).parameters if name != "kwargs")
    ran = f"it ran on {', '.join(inputs_of(tuple(args), kwargs))}; "
    others = f" gives others of forward({names}), and FILE.py:FUNCTION, which returns (module, inputs), objects"
    return [ran, Option("input", "NAME=SIZES"), others]


def count_model(model: Model, counters: Sequence[str], device: str | None = None) -> Count:
    """Return headcount's count of a model, with its device, and what each of ``counters`` reports.

    ``device``: of every count. By default headcount counts on meta, and on the model's own device one that fails there
    or is another there; for the other tools see tool_device.
    """
    tools = [registry.counter(name) for name in counters]
    record = cache(partial(model.record, tools=tools))
    with one_thread():
        call, where, why = _count_by_headcount(model, record, tools, device)
        count = call.headcount

        def on(device: str) -> RecordedCall:
            return call if device == where else record(device)

        exact = count.macs if model.closed_form is None else model.closed_form.macs
        # a module that needs values has run with them
        known = device or (where if where not in (META, FAKE) else None)
        places = {tool: tool_device(tool, model, known, exact) for tool in tools}
        places |= {tool: (where, None) for tool in tools if tool.NAME == HEADCOUNT}
        found: dict[ModuleType, ToolCount] = {}
        # one that reads values does not run on meta
        without_weights = where if where == FAKE else META
        for (there, reason), here in _by_place(places).items():
            there = without_weights if there == META else there
            try:
                recorded = on(there)
            except UserCodeError as error:
                there, reason = without_weights, str(error)
                recorded = on(there)
            for tool in here:
                found[tool] = replace(recorded.count(tool, exact, model.closed_form), device=there, why_there=reason)
    notes = (*(count.notes or ()), *(_drawn_note(model, call) if where == FAKE else ()))
    if why and where == META:
        # it could not be verified on the module's own device
        why, notes = None, (why, *notes)
    return count.with_values(device=where, why_there=why, notes=notes, tools=tuple(found[tool] for tool in tools))


def count_closed_form(model: Model, counters: Sequence[str], device: str | None = None) -> Count:
    """Return the closed form of a model, with its module's parameters and what each of ``counters`` reports.

    Nothing is recorded: the rules of each tool predict its count from the ledger.
    """
    ledger = model.closed_form or Ledger(())
    places = {tool: tool_device(tool, model, device, ledger.macs) for tool in map(registry.counter, counters)}
    found: dict[ModuleType, ToolCount] = {}
    parameters: tuple[Parameter, ...] = ()
    with one_thread():
        # one device after the other: a model with values is freed before the next is built
        for (where, why), here in _by_place(places).items():
            call = model.on(where, here)
            named = call.module.named_parameters()
            parameters = tuple(Parameter(name, tuple(weight.shape), weight.requires_grad) for name, weight in named)
            for tool in here:
                count = call.count(tool, ledger.macs, ledger, is_recorded=False)
                found[tool] = replace(count, device=where, why_there=why)
    return Count(model.label, ledger, parameters=parameters, tools=tuple(found[tool] for tool in places))


Place = tuple[str, str | None]
"""A device, and why a tool counts there and not where its users run it."""


def _by_place(places: Mapping[ModuleType, Place]) -> dict[Place, list[ModuleType]]:
    """Return the tools by their place."""
    found: dict[Place, list[ModuleType]] = {}
    for tool, place in places.items():
        found.setdefault(place, []).append(tool)
    return found


def tool_device(tool: ModuleType, model: Model, device: str | None, macs: int) -> Place:
    """Return where a tool counts a model, and why not where its users run it, of a model too large for the CPU.

    They run a module on the device of its tensors, and on the CPU one on meta. A model that is built anew is counted
    where the rules of the tool were verified. ``device``: where every tool counts every model.
    """
    if device:
        return device, None
    own = [one for one in (model.device or tool.DEVICE).split("/") if one != META]
    where = "/".join(own) or ("cpu" if model.device else META)
    why = too_large_for_cpu(macs, model.stored_bytes()) if where == "cpu" else None
    return (META, why) if why else (where, None)


def _count_by_headcount(
    model: Model, record: Callable[[str], RecordedCall], tools: Sequence[ModuleType], device: str | None
) -> tuple[RecordedCall, str, str | None]:
    """Return the recorded call, its device, and the reason where that is not meta, or why the model fails on its own.

    The default is meta; where that fails, or counts a small module differently, the device of the module's tensors. A
    module without weights whose forward reads values of its inputs is counted with fake weights and these inputs.
    """
    own = model.device or META
    if device not in (None, META):
        return _record_on_own(model, tools, device), device, None
    try:
        call = record(META)
    except UserCodeError as error:
        if META in (device, own):
            raise
        if META in own.split("/"):
            return record(FAKE), FAKE, str(error)
        return _record_on_own(model, tools, own), own, str(error)
    count = call.headcount
    if device == META or META in own.split("/") or count.macs > MAX_CHECKED_MACS:
        return call, META, None
    try:
        there = record(own)
    except UserCodeError as error:
        return call, META, f"Not verified: {str(error).rstrip('.')}."
    found = there.headcount
    if (found.dispatched, found.with_elementwise) == (count.dispatched, count.with_elementwise):
        return call, META, None
    return there, own, f"it counts {count.macs:,} there and {found.macs:,} on {own}"


def _drawn_note(model: Model, call: RecordedCall) -> list[str]:
    """Return whether a count with fake weights is the same with other drawn numbers; nothing where none are read."""
    count = call.headcount
    modes = {weight.fake_mode for weight in call.module.parameters() if isinstance(weight, FakeTensor)}
    if not any(mode.has_drawn for mode in modes):
        return []
    if not any(base(event.name) in READS for event in count.trace.operations()):
        return []
    is_same = not may_read_weights(count.trace)
    others = count.macs if is_same else model.record(FAKE_AGAIN, ()).headcount.macs
    drawn = "Values that the model computes and reads, as a router's choice, are drawn"
    return [f"{drawn}: {'the MACs are the same' if others == count.macs else f'{others:,} MACs'} with others"]


def _record_on_own(model: Model, tools: Sequence[ModuleType], where: str) -> RecordedCall:
    """Return the call on ``where``, the device of the model's tensors. Raises UserCodeError where it does not run."""
    call = model.on(where, tools)
    try:
        _ = call.headcount
    except BaseException:
        module, args, kwargs = call.module, call.args, call.kwargs
        with torch.no_grad():
            run_user_code(f"the module's forward pass on {where}", lambda: module.eval()(*args, **kwargs))
        # the module runs, so headcount is at fault: its own traceback is printed
        raise
    return call


def model_of(case: Case) -> Model:
    """Return the module of a case as a model without values.

    bfloat16 halves the memory traffic; no counter looks at the type.
    """

    def call_on(device: str) -> ModuleCall:
        return build_call(case.config, case.lengths, device=device, dtype=torch.bfloat16)

    def stored_bytes() -> int:
        return torch.bfloat16.itemsize * case.ledger.params

    return Model(case.name, call_on, stored_bytes, closed_form=case.ledger)
