"""fvcore: the calls that remain in the graph of a ``torch.jit`` trace.

    linear, matmul, mm,     the first operand's elements times the other's columns, no bias:
      bmm, addmm            jit_handles.py:84-126, 217-227
    convolutions            batch x weight x positions, no bias: :127-171
    einsum                  half of the figure that numpy prints with four digits: :174-214
    layer_norm and others   5 or 4 per element, batch_norm 2 or 1: :230-260
    interpolation, pooling  4 or 1 per element: flop_count.py:40-43
    every other call        0: ignored (jit_analysis.py:30-89) or listed as unsupported (:495-502)

Calls inside an autograd.Function are hidden (the Function is prim::PythonOp), and calls that no output depends
on are removed from the graph. Places are in the fvcore 0.1.5 sources.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn

from headcount.bench.counters import rules
from headcount.bench.counters.base import PRODUCT, TORCH, CallCount, Reported, exact_int
from headcount.bench.trace.events import AUTOGRAD, FUNCTION, OPERATION, Event, TensorFact, Trace, tensors_in
from headcount.bench.trace.shapes import cache_shapes

NAME = "fvcore"
DEVICE = "meta"
VERIFIED = {"fvcore": "0.1.5.post20221221", "torch": TORCH}
HOOKS = True
ADDS = {"norm": lambda entry: 5 if entry.weight else 4, "pooling": 1}
"""aten::layer_norm with a scale, else without (jit_handles.py:230-248); aten::adaptive_avg_pool2d
(flop_count.py:42)."""


def read(model: nn.Module, inputs: Mapping[str, Tensor]) -> Reported:
    """Count one forward pass.

    Its flops are multiply-accumulates (flop_count.py:56). ``unsupported`` are the operators without a handle, except
    those that it ignores (jit_analysis.py:28-87). It fails, for instance, for a convolution on meta, which torch 2.13
    cannot trace.
    """
    with warnings.catch_warnings():
        # The trace compiles small functions, which torch has deprecated.
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        analysis = FlopCountAnalysis(model, tuple(inputs.values()))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        with cache_shapes(model):
            total = analysis.total()
        return {"macs": exact_int(total), "unsupported": dict(analysis.unsupported_ops())}


def _cell(event: Event) -> dict[str, int]:
    """Count a recurrent cell as the two linear layers into which the tracer decomposes it."""
    x, state, into, over = event.args[:4]
    hidden = state[0] if isinstance(state, tuple) else state
    return {PRODUCT: x.numel * into.shape[0] + hidden.numel * over.shape[0]}


def _convolution(event: Event) -> dict[str, int]:
    """Count the batch times the weight's elements times the positions."""
    # aten::_convolution_mode, of a padding given as a word, has no handle.
    times = 0 if isinstance(event.argument(4, "padding"), str) else 3 if event.out.dtype.startswith("complex") else 1
    return {PRODUCT: times * rules.convolution(event)[PRODUCT]}


def _einsum(event: Event) -> dict[str, int]:
    """Count half of the FLOPs of numpy's own order of contraction, printed with four digits."""
    equation, shapes = event.args[0].replace(" ", ""), [fact.shape for fact in event.tensors()]
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    plain = equation.translate({ord(letter): 97 + i for i, letter in enumerate(letters)})
    if plain == "abc,abd->acd":
        macs = prod(shapes[0]) * shapes[-1][-1]
    elif plain == "abc,adc->adb":
        macs = prod(shapes[0]) * shapes[-1][1]
    else:
        # Shapes are all that numpy looks at: no memory for the operands.
        arrays = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]
        report = np.einsum_path(plain, *arrays, optimize="optimal")[1]
        printed = next(line for line in report.split("\n") if "optimized flop" in line.lower())
        macs = int(np.floor(float(printed.split(":")[-1]) / 2))
    return {PRODUCT: macs}


def _norm(affine_at: int) -> Callable[[Event], dict[str, int]]:
    def rule(event: Event) -> dict[str, int]:
        affine = isinstance(event.argument(affine_at, "weight"), TensorFact)
        return {"norm": event.argument(0, "input").numel * (5 if affine else 4)}

    return rule


def _batch_norm(event: Event) -> dict[str, int]:
    x, weight, training = event.argument(0, "input"), event.argument(1, "weight"), event.argument(5, "training")
    affine = isinstance(weight, TensorFact)
    return {"norm": x.numel * ((5 if affine else 4) if training else (2 if affine else 1))}


TABLE: rules.Rules = {
    "linear": (rules.linear, "jit_handles.py:99-110"),
    **dict.fromkeys(("matmul", "__matmul__", "__rmatmul__", "mm"), (rules.matmul, "jit_handles.py:217-227")),
    "bmm": (rules.matmul, "jit_handles.py:113-126"),
    "addmm": (rules.addmm, "jit_handles.py:82-96"),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), (_cell, "jit_handles.py:99-110")),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        (_convolution, "jit_handles.py:127-171"),
    ),
    "convolution": (rules.convolution, "jit_handles.py:127-171"),
    "einsum": (_einsum, "jit_handles.py:174-214"),
    **dict.fromkeys(("layer_norm", "group_norm"), (_norm(2), "jit_handles.py:230-248")),
    "instance_norm": (_norm(1), "jit_handles.py:230-248"),
    "batch_norm": (_batch_norm, "jit_handles.py:251-259"),
    "upsample_nearest2d": (rules.elements("interpolation", of_output=True), "flop_count.py:40"),
    "upsample_bilinear2d": (rules.elements("interpolation", 4, of_output=True), "flop_count.py:41"),
    "adaptive_avg_pool2d": (rules.elements("pooling"), "flop_count.py:42"),
    "grid_sampler": (rules.elements("interpolation", 4, of_output=True), "flop_count.py:43"),
}


def call_counts(trace: Trace) -> list[CallCount]:
    """Return what is counted for each call of a forward pass, in order."""
    live = (_as_traced(trace, trace.events[index]) for index in sorted(_live_functions(trace)))
    return rules.apply(live, TABLE, "aten::")


def _as_traced(trace: Trace, event: Event) -> Event:
    """Return a product that vmap runs with its first operand as the graph has it, before matmul expands it."""
    if event.name == "bmm" and not event.backward and event.what == OPERATION and event.parent is not None:
        for other in trace.events[event.parent + 1 : event.index]:
            if (other.name, other.parent) == ("expand", event.parent) and other.args[0].storage == event.args[
                0
            ].storage:
                return replace(event, args=(other.args[0], *event.args[1:]))
    return event


def reason_missed(trace: Trace, event: Event) -> tuple[str, str]:
    """Return why an operation is not counted, and where in fvcore or torch that is decided."""
    for outer in trace.around(event, AUTOGRAD):
        return f"hidden in the autograd.Function {outer.name.rpartition('.')[2]}", "jit_analysis.py:642-653"
    name = [event, *trace.around(event, FUNCTION)][-1].name
    if name in TABLE:
        return f"{name} is dead code: no output depends on it", "torch.jit removes it from the graph"
    return f"{rules.full_name(name, '::')} has no handle", "flop_count.py:26-46"


def _live_functions(trace: Trace) -> set[int]:
    """Return the calls of a forward pass that stay in a traced graph.

    They are calls into torch's C++; where a transform of torch.func is around one, and in a gradient inside the
    forward pass, the operations that run. A traced graph holds no operations inside an autograd.Function, only the
    Function, which always stays (torch/csrc/jit/ir/ir.cpp, hasSideEffects).
    """
    live = _live_operations(trace)
    out = set()
    for index in live:
        calls = list(trace.around(trace.events[index], FUNCTION))
        # The tracer records the call that Python made, not what that call does inside.
        if trace.events[index].backward or any(call.transformed for call in calls):
            out.add(index)
        elif calls:
            out.add(calls[-1].index)
    return out


def _live_operations(trace: Trace) -> set[int]:
    forward = [e for e in trace.events if e.what == OPERATION and not e.composite]
    hidden = {event.index for event in forward if any(trace.around(event, AUTOGRAD))}
    lasting = {fact.storage for fact in tensors_in((trace.args, trace.kwargs))}
    lasting |= trace.parameters.keys() | trace.buffers.keys()
    waiting = [fact.source for fact in tensors_in(trace.out)]
    waiting += [event.index for event in forward if lasting.intersection(event.writes)]
    for event in trace.events:
        if event.what == AUTOGRAD and not event.backward:
            waiting += _sources(event)
    live: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index is not None and index not in live and index not in hidden:
            live.add(index)
            waiting += _sources(trace.events[index])
    return live


def _sources(event: Event) -> list[int | None]:
    return [fact.source for fact in event.tensors()]
