"""Times of user modules on a card, by the kernels of a run in another process."""

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.closed_form.times import time_table
from headcount.bench.counting.kernels import record_target
from headcount.bench.hardware import HARDWARE
from headcount.bench.targets.target import Target

MODEL = """
import torch
from torch import nn

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Linear(4, 4)
    def forward(self, x):
        return self.p(x) * float(self.p(x).sum())

def make(n=3):
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(n)]).bfloat16(), (torch.zeros(8, 32).bfloat16(),)

def reads():
    return Reads(), (torch.zeros(2, 4),)
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "model.py"


def test_kernels_are_those_of_a_run(model):
    found = record_target(Target(f"{model}:make", {"n": 5}))
    assert [one.kind for one in found.forward] == ["product"] * 5
    assert sum(one.macs for one in found.forward) == 5 * 8 * 32 * 32
    # no gradient of the first input
    assert sum(one.macs for one in found.training) == (3 * 5 - 1) * 8 * 32 * 32
    assert (found.trained, found.dtype, found.reason) == (5 * (32 * 32 + 32), "bfloat16", "")


def test_module_has_times_of_both_passes(model):
    table = time_table(Target(f"{model}:make"), HARDWARE["h100"], Assumptions())
    forward, training = table.rows
    assert 0 < forward.least_ms < forward.expected_ms < training.expected_ms
    assert "of a run in bfloat16" in table.above[0] and forward.kernels == 3


def test_module_that_reads_values_has_a_reason(model):
    with pytest.raises(Exception, match="run on meta tensors"):
        record_target(Target(f"{model}:reads"))
