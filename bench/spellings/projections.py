"""A linear layer written in each way: (…, in) to (…, out), with a bias."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Weights(nn.Module):
    """``weight`` (out, in) and ``bias`` (out)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_features))


class Functional(Weights):
    """F.linear on parameters of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Operator(Weights):
    """x @ W + b."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class Addmm(Weights):
    """torch.addmm on two-dimensional rows, as GPT-2's Conv1D in transformers."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight.T).view(*x.shape[:-1], -1)


class Subclass(nn.Linear):
    """A subclass of nn.Linear, as adapters and quantised layers are."""


class Convolution(nn.Module):
    """nn.Conv1d with a window of one."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_features, out_features, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)
