"""The names and lines that counters cite exist in the sources of their tools."""

import functools
import inspect
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from ptflops import aten_ops, pytorch_engine, pytorch_ops

from headcount.bench.counters import fvcore_jit, ptflops_aten, ptflops_pytorch


def requires_version(name, number):
    other = not version(name).startswith(number)
    return pytest.mark.skipif(other, reason=f"places are in the sources of {name} {number}")


def is_at(place, function):
    """Return whether a function begins in a place such as "file.py:3-5, 7-9"; wrappers and decorators are skipped."""
    function = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    lines, first = inspect.getsourcelines(function)
    line = first + next(number for number, text in enumerate(lines) if text.lstrip().startswith("def "))
    file, _, spans = place.partition(":")
    return Path(inspect.getfile(function)).name == file and any(
        int(start) <= line <= int(end) for start, end in (span.split("-") for span in spans.split(", "))
    )


def patched_names(function):
    """Return the names that a function of ptflops sets; F is torch.nn.functional."""
    names = re.findall(r"^ +((?:F|torch|torch\.Tensor)\.\w+) = ", inspect.getsource(function), re.MULTILINE)
    return {re.sub("^F", "torch.nn.functional", name) for name in names}


@requires_version("ptflops", "0.7.5")
def test_ptflops_handlers():
    assert patched_names(pytorch_engine.patch_functional) | patched_names(pytorch_engine.patch_tensor_ops) == set(
        ptflops_pytorch.NAMES
    )
    known = pytorch_ops.FUNCTIONAL_MAPPING | pytorch_ops.TENSOR_OPS_MAPPING
    for name, (_, place) in ptflops_pytorch.HANDLERS.items():
        assert is_at(place, known[functools.reduce(getattr, name.split(".")[1:], torch)]), (name, place)


@requires_version("ptflops", "0.7.5")
def test_ptflops_hooks():
    assert {
        kind for kind in pytorch_ops.MODULES_MAPPING if kind.__module__.startswith("torch.nn.")
    } == ptflops_pytorch.HOOKED.keys()
    for kind, (_, lines) in ptflops_pytorch.HOOKED.items():
        assert is_at(f"pytorch_ops.py:{lines}", pytorch_ops.MODULES_MAPPING[kind]), (kind, lines)


@requires_version("ptflops", "0.7.5")
def test_ptflops_operators():
    known = {packet.__name__: rule for packet, rule in aten_ops.ATEN_OPS_MAPPING.items()}
    assert known.keys() == ptflops_aten.TABLE.keys()
    for name, (_, place) in ptflops_aten.TABLE.items():
        assert is_at(place, known[name]), (name, place)


AS_TRACED = {
    "__matmul__": "matmul", "__rmatmul__": "matmul", "convolution": "_convolution",
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), "linear"),
    **{f"{kind}{n}d": "_convolution" for kind in ("conv", "conv_transpose") for n in (1, 2, 3)},
}  # fmt: skip
"""The name of a call in the graph by its name in Python, where these differ."""


@requires_version("fvcore", "0.1.5")
def test_fvcore_handles():
    flop_count = import_module("fvcore.nn.flop_count")
    known = {name.removeprefix("aten::"): rule for name, rule in flop_count._DEFAULT_SUPPORTED_OPS.items()}
    assert {AS_TRACED.get(name, name) for name in fvcore_jit.TABLE} == known.keys()
    lines = inspect.getsource(flop_count).splitlines()
    for call, (_, place) in fvcore_jit.TABLE.items():
        name = AS_TRACED.get(call, call)
        file, _, line = place.partition(":")
        if file == "flop_count.py":
            assert f'"aten::{name}"' in lines[int(line) - 1]
        else:
            assert is_at(place, known[name]), (call, place)
