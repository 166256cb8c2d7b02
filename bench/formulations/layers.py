"""Whole layers around a core, an expert projection or a vocabulary projection, and linear layers in each formulation.

A linear layer is (…, in) to (…, out), with a bias.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.bench.formulations.cores import Core
from headcount.bench.formulations.experts import Experts

_Unbiased = partial(nn.Linear, bias=False)


class Weights(nn.Module):
    """``weight`` (out, in) and ``bias`` (out)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_features))


class Functional(Weights):
    """F.linear on the parameters."""

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


class FormulatedMHA(nn.Module):
    """Multi-head attention from ``query`` (B, T, d) to ``key`` (B, S, d), with biases."""

    def __init__(
        self, core: Core, d_model: int, num_heads: int, num_kv_heads: int, linear: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__()
        self.core, self.head_dim = core, d_model // num_heads
        self.q_proj = linear(d_model, d_model)
        self.k_proj = linear(d_model, num_kv_heads * self.head_dim)
        self.v_proj = linear(d_model, num_kv_heads * self.head_dim)
        self.out_proj = linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        q, k, v = (self._heads(x) for x in (self.q_proj(query), self.k_proj(key), self.v_proj(key)))
        return self.out_proj(self.core(q, k, v).transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class TorchMHA(nn.Module):
    """nn.MultiheadAttention; from a sequence to itself it takes torch's fast path where there is one."""

    def __init__(self, d_model: int, num_heads: int, need_weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.need_weights = need_weights

    def forward(self, query: Tensor, key: Tensor | None = None) -> Tensor:
        key = query if key is None else key
        return self.attention(query, key, key, need_weights=self.need_weights)[0]


class FormulatedMoA(nn.Module):
    """Mixture of attention heads: K of E experts for each token of ``query``, keys and values shared."""

    def __init__(
        self, core: Core, experts: type[Experts], d_model: int, num_experts: int, top_k: int, head_dim: int
    ) -> None:
        super().__init__()
        self.core, self.top_k = core, top_k
        self.router = _Unbiased(d_model, num_experts)
        self.q_proj = experts(num_experts, d_model, head_dim)
        self.k_proj = _Unbiased(d_model, head_dim)
        self.v_proj = _Unbiased(d_model, head_dim)
        self.out_proj = experts(num_experts, head_dim, d_model)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        weights, indices = torch.softmax(self.router(query), dim=-1).topk(self.top_k, dim=-1)
        q = self.q_proj(query[:, :, None].expand(-1, -1, self.top_k, -1), indices)
        k, v = self.k_proj(key)[:, None], self.v_proj(key)[:, None]
        out = self.core(q.transpose(1, 2), k, v).transpose(1, 2)
        return (self.out_proj(out, indices) * weights[..., None]).sum(2)


class VocabularyTied(nn.Module):
    """The vocabulary projection as F.linear on the embedding's weight."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.embedding(tokens), self.embedding.weight)


class VocabularyModule(VocabularyTied):
    """The vocabulary projection as a nn.Linear that shares the embedding's weight."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__(d_model, vocab_size)
        self.projection = _Unbiased(d_model, vocab_size)
        self.projection.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.projection(self.embedding(tokens))
