"""A module is put into evaluation mode where it has one, and somebody's own error there is theirs."""

import pytest
import torch
from torch import nn

from headcount.bench.trace.events import NAMED
from headcount.bench.trace.names import evaluating, keeping
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

NAMES = ("mm", "matmul", "there_is_none")


class Broken(nn.Module):
    def eval(self):
        return self.not_there


def test_an_error_in_a_modules_own_eval_passes_through():
    with pytest.raises(AttributeError, match="not_there"):
        evaluating(Broken())


def test_what_has_no_other_mode_stays_in_its_own():
    plain = nn.Linear(3, 5)
    evaluating(plain)
    assert not plain.training
    frozen = torch.jit.freeze(torch.jit.script(plain))
    assert not hasattr(frozen, "training")
    evaluating(frozen)
    evaluating(nn.Sequential(frozen))


def test_functions_that_are_kept_are_afterwards_what_and_where_they_were():
    def held():
        return {name: (name in vars(owner), vars(owner).get(name)) for owner in (torch, torch.Tensor) for name in NAMES}

    before = held()
    with keeping(("torch.mm", "torch.Tensor.matmul", "torch.there_is_none")):
        torch.mm = torch.Tensor.matmul = None
    assert held() == before and not hasattr(torch, "there_is_none")


def test_a_name_that_this_torch_does_not_have_is_left_out():
    trace = record(module(torch.ones_like), (torch.ones(3),), names=("torch.there_is_none", "torch.mm"))
    assert [event.what for event in trace.events if event.what == NAMED] == []
    trace = record(module(lambda x: torch.mm(x, x)), (torch.ones(3, 3),), names=("torch.there_is_none", "torch.mm"))
    assert [event.name for event in trace.events if event.what == NAMED] == ["torch.mm"]
