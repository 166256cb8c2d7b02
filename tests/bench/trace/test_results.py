"""Tensors in the result of a module: a backward pass begins at them, however they are nested."""

from collections import ChainMap, UserDict, deque
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch import nn

import headcount as hc


@dataclass
class Output:
    y: object


@dataclass(slots=True)
class SlotsOutput:
    y: object


class Other:
    def __init__(self, y):
        self.y = y


NESTED = {
    "tensor": lambda y: y,
    "dataclass": Output,
    "slots": SlotsOutput,
    "dataclass in a tuple": lambda y: (Output(y), None),
    "dataclass in a dataclass": lambda y: Output(Output([y])),
    "namespace": lambda y: SimpleNamespace(a=1, b=y),
    "mappings": lambda y: UserDict(a=ChainMap({"b": MappingProxyType({"c": y})})),
    "deque": lambda y: deque([(), {"a": y}]),
}


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.linear, self.wrap = nn.Linear(5, 7), wrap

    def forward(self, x):
        return self.wrap(self.linear(x))


@pytest.mark.parametrize("kind", NESTED)
def test_backward_begins_at_nested_results(kind):
    # forward, and the gradients of the weight and of the input
    assert hc.count(Wrapped(NESTED[kind]), torch.ones(3, 5), backward=True).macs == 3 * 3 * 5 * 7


@pytest.mark.parametrize("wrap", [Other, lambda y: {"a": (Other(y), 3)}])
def test_backward_of_a_result_without_known_tensors_is_an_error(wrap):
    assert hc.count(Wrapped(wrap), torch.ones(3, 5)).macs == 3 * 5 * 7
    with pytest.raises(RuntimeError, match="none is found in a result of type Other"):
        hc.count(Wrapped(wrap), torch.ones(3, 5), backward=True)


def test_backward_needs_autograd():
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        hc.count(nn.Linear(5, 7), torch.ones(3, 5), backward=True)
