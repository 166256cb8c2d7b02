"""A module is put into evaluation mode where it has one, and somebody's own error there is theirs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headcount.bench.trace.events import FUNCTION, NAMED
from headcount.bench.trace.modes import FunctionTracer
from headcount.bench.trace.names import Guards, patched, restore_names, set_eval_mode
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

NAMES = ("mm", "matmul", "there_is_none")


class Broken(nn.Module):
    def eval(self):
        return self.not_there


def test_an_error_in_a_modules_own_eval_passes_through():
    with pytest.raises(AttributeError, match="not_there"):
        set_eval_mode(Broken())


def test_what_has_no_other_mode_stays_in_its_own():
    plain = nn.Linear(3, 5)
    set_eval_mode(plain)
    assert not plain.training
    frozen = torch.jit.freeze(torch.jit.script(plain))
    assert not hasattr(frozen, "training")
    set_eval_mode(frozen)
    set_eval_mode(nn.Sequential(frozen))


def test_functions_that_are_kept_are_afterwards_what_and_where_they_were():
    def held():
        return {name: (name in vars(owner), vars(owner).get(name)) for owner in (torch, torch.Tensor) for name in NAMES}

    before = held()
    with restore_names(("torch.mm", "torch.Tensor.matmul", "torch.there_is_none")):
        torch.mm = torch.Tensor.matmul = None
    assert held() == before and not hasattr(torch, "there_is_none")


def test_a_name_that_this_torch_does_not_have_is_left_out():
    trace = record(module(torch.ones_like), (torch.ones(3),), names=("torch.there_is_none", "torch.mm"))
    assert [event.what for event in trace.events if event.what == NAMED] == []
    trace = record(module(lambda x: torch.mm(x, x)), (torch.ones(3, 3),), names=("torch.there_is_none", "torch.mm"))
    assert [event.name for event in trace.events if event.what == NAMED] == ["torch.mm"]


ASKING = {
    "has_torch_function_unary": (F.hardtanh, ["hardtanh"]),
    "has_torch_function_variadic": (lambda x: F.layer_norm(x, (5,)), ["layer_norm"]),
    "has_torch_function": (lambda x: torch.functional.einsum("ab,cb->ac", x, x), ["einsum"]),
}
"""Torch's Python by how it asks whether somebody else takes the whole call, and what of C++ it calls then."""


@pytest.mark.parametrize("question", ASKING)
def test_nobody_takes_a_whole_call_of_torchs_python_so_that_what_it_calls_is_seen(question):
    function, calls = ASKING[question]
    trace = record(module(function), (torch.ones(3, 5),))
    assert [event.name for event in trace.events if event.what == FUNCTION] == calls


def test_a_tensor_with_functions_of_its_own_takes_the_whole_call():
    taken = []

    class Taking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            taken.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    record(module(lambda x: F.layer_norm(x, (5,))), (torch.ones(3, 5).as_subclass(Taking),))
    assert F.layer_norm in taken


def test_questions_are_answered_in_a_modules_own_names_and_in_nobody_elses():
    asked = torch.functional.has_torch_function
    with patched() as replaced:
        guards = Guards(FunctionTracer, replaced)
        for alone in ({}, {"__name__": "nowhere"}, {"__name__": "torch.functional"}):
            guards.open({**alone, "has_torch_function": asked})
            assert torch.functional.has_torch_function is asked
        guards.open(vars(torch.functional))
        assert torch.functional.has_torch_function == guards.has_torch_function
    assert torch.functional.has_torch_function is asked
