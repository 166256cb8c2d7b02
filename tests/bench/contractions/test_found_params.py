"""Parameters of functions, which register none: those that the run reads, by every way to write the function."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headcount as hc


class Block(nn.Module):
    """Two linear layers, one of which may have no use, and a weight of its own."""

    def __init__(self, d, width):
        super().__init__()
        self.up, self.down = nn.Linear(d, width), nn.Linear(width, d, bias=False)
        self.scale = nn.Parameter(torch.ones(d), requires_grad=False)

    def forward(self, x):
        return self.down(self.up(x).relu()) * self.scale


class Pipeline:
    """A callable object that holds a module."""

    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        return self.model(x)


def weights(m):
    return dict(m.named_parameters())


def loaded(m):
    """Return a module made in the call, with the weights of ``m``."""
    made = Block(*m.down.weight.shape)
    made.scale.requires_grad_(False)
    made.load_state_dict(m.state_dict())
    return made


WAYS = {
    "lambda": lambda m: lambda x: m(x),
    "partial": lambda m: partial(m),
    "partial-of-function": lambda m: partial(lambda model, x: model(x), m),
    "object": Pipeline,
    "method-of-object": lambda m: Pipeline(m).__call__,
    "list": lambda m: [m][0].__call__,
    "compiled-function": lambda m: torch.compile(lambda x: m(x)),
    "compiled-module": lambda m: partial(torch.compile(m)),
    "vmap": lambda m: torch.vmap(m),
    "functional-call": lambda m: lambda x: torch.func.functional_call(m, weights(m), (x,)),
    "functional-call-of-tensors": lambda m: (
        lambda x: torch.func.functional_call(m, {name: value.detach() for name, value in weights(m).items()}, (x,))
    ),
    "raw": lambda m: lambda x: F.linear(F.linear(x, m.up.weight, m.up.bias).relu(), m.down.weight) * m.scale,
    "submodules": lambda m: lambda x: m.down(m.up(x).relu()) * m.scale,
    "no-grad": lambda m: torch.no_grad()(lambda x: m(x)),
    "deepcopy": lambda m: lambda x: copy.deepcopy(m)(x),
    "deepcopy-of-a-type": lambda m: lambda x: copy.deepcopy(m).double().float()(x),
    "loaded": lambda m: lambda x: loaded(m)(x),
    "twice": lambda m: lambda x: m(m(x)) - m(x),
}


@pytest.mark.parametrize("d, width", [(5, 7), (3, 2), (11, 13)])
@pytest.mark.parametrize("way", WAYS)
def test_function_has_the_parameters_that_it_reads(way, d, width):
    count = hc.count(WAYS[way](Block(d, width)), torch.ones(2, 3, d))
    params = 2 * d * width + width + d
    assert (count.params, count.trainable_params, count.active_params) == (params, params - d, params)
    assert count.weight_bytes == 4 * params
    assert count.macs == {"twice": 3}.get(way, 1) * 2 * 3 * 2 * d * width
    assert set(count.by_kind()) == {"linear"}


@pytest.mark.parametrize("models", [2, 5])
def test_stacked_models_have_all_their_parameters(models):
    blocks = [nn.Linear(3, 7) for _ in range(models)]
    params, buffers = torch.func.stack_module_state(blocks)

    def ensemble(x):
        run = lambda p, b: torch.func.functional_call(blocks[0], (p, b), (x,))  # noqa: E731
        return torch.vmap(run)(params, buffers)

    count = hc.count(ensemble, torch.ones(5, 3))
    assert (count.params, count.macs) == (models * (3 * 7 + 7), models * 5 * 3 * 7)


def test_what_a_function_does_not_read_is_no_parameter():
    m = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7))
    assert hc.count(lambda x: m[0](x), torch.ones(2, 3)).params == 3 * 5 + 5
    m.unused = nn.Linear(11, 13)
    m.forward = lambda x: m[1](m[0](x))
    assert hc.count(lambda x: m(x), torch.ones(2, 3)).params == 3 * 5 + 5 + 5 * 7 + 7


@pytest.mark.parametrize("size", [3, 7])
def test_trained_tensors_of_a_closure_are_parameters(size):
    trained = torch.ones(size, 5, requires_grad=True)
    constant = torch.ones(5, 2)
    x = torch.ones(4, size, requires_grad=True)
    assert hc.count(lambda x: x @ trained @ constant, x).params == size * 5
    assert hc.count(lambda x: x @ x.mT, x).params == 0


def test_equal_classes_in_a_function_have_rows_of_their_own():
    first, second = nn.Linear(3, 5), nn.Linear(5, 3)
    count = hc.count(lambda x: second(first(second(first(x)))), torch.ones(2, 3))
    found = {module.path: (module.params, module.calls) for module in count.modules if module.params}
    assert found == {"(Linear)": (20, 2), "(Linear 2)": (18, 2)}
    assert count.by_module() == {"": 2 * 2 * 30, "(Linear)": 60, "(Linear 2)": 60}


def test_modules_in_a_plain_list_have_their_parameters():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(3, 3) for _ in range(4)]

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    count = hc.count(Hidden(), torch.ones(2, 3))
    assert (count.params, count.active_params) == (4 * 12, 4 * 12)
