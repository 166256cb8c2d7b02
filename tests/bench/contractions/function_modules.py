"""Wrap functions as modules."""

from torch import nn


class Calls(nn.Module):
    """Module whose forward calls ``function(module, *inputs)``; keyword arguments become attributes and children."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def module(function):
    """Return a module whose forward calls ``function(*inputs)``."""
    return Calls(lambda _, *inputs: function(*inputs))
