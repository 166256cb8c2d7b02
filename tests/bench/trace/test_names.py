"""Patched names are restored, and torch's Python functions are entered."""

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.trace.events import FUNCTION
from headcount.bench.trace.names import restore_names
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

NAMES = ("mm", "matmul", "there_is_none")


def test_restore_names_restores_functions():
    def held():
        return {name: (name in vars(owner), vars(owner).get(name)) for owner in (torch, torch.Tensor) for name in NAMES}

    before = held()
    with restore_names(("torch.mm", "torch.Tensor.matmul", "torch.there_is_none")):
        torch.mm = torch.Tensor.matmul = None
    assert held() == before and not hasattr(torch, "there_is_none")


GUARDED = {
    "has_torch_function_unary": (F.hardtanh, ["hardtanh"]),
    "has_torch_function_variadic": (lambda x: F.layer_norm(x, (5,)), ["layer_norm"]),
    "has_torch_function": (lambda x: torch.functional.einsum("ab,cb->ac", x, x), ["einsum"]),
}
"""Functions of torch's Python by the guard that they call, and the calls into C++ inside them."""


@pytest.mark.parametrize("question", GUARDED)
def test_python_functions_of_torch_are_entered(question):
    function, calls = GUARDED[question]
    trace = record(module(function), (torch.ones(3, 5),))
    assert [event.name for event in trace.events if event.what == FUNCTION] == calls


def test_torch_function_subclass_takes_call():
    taken = []

    class Taking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            taken.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    record(module(lambda x: F.layer_norm(x, (5,))), (torch.ones(3, 5).as_subclass(Taking),))
    assert F.layer_norm in taken
