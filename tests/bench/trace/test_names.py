"""A module is put into evaluation mode where it has one, and somebody's own error there is theirs."""

import pytest
import torch
from torch import nn

from headcount.bench.trace.names import evaluating


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
