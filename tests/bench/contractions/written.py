"""Modules made of functions."""

from torch import nn


class Calls(nn.Module):
    """A forward that is a function of the module and its inputs, with children and other attributes by keyword."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def module(function):
    """A module whose forward is ``function``."""
    return Calls(lambda _, *inputs: function(*inputs))
