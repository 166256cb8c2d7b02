"""A projection of K of E experts written in each way: rows x (B, T, K, in), indices (B, T, K) to (B, T, K, out)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Experts(nn.Module):
    """y = x W_e with the expert e of each row; ``weight`` is (E, in, out)."""

    def __init__(self, num_experts: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_experts, in_features, out_features) * in_features**-0.5)


class GatheredBmm(Experts):
    """Each row's weights gathered, multiplied by torch.bmm."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        y = torch.bmm(x.reshape(-1, 1, x.shape[-1]), self.weight[indices.reshape(-1)])
        return y.reshape(*indices.shape, -1)


class GatheredBroadcast(Experts):
    """Each row's weights gathered, multiplied by torch.matmul with a token's row broadcast over its experts."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        if x.stride(2) == 0:
            x = x[:, :, :1]
        return torch.matmul(x[..., None, :], self.weight[indices])[..., 0, :]


class MaskLoop(Experts):
    """A loop over all experts, each on the rows that chose it: needs values, so no meta device."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        y = x.new_zeros(*indices.shape, self.weight.shape[-1])
        for expert, weight in enumerate(self.weight):
            rows = torch.where(indices == expert)
            y[rows] = torch.matmul(x[rows], weight)
        return y


class InFunction(Experts):
    """Gathered weights and torch.bmm inside a torch.autograd.Function, as released expert kernels are."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        return _RowsTimesExperts.apply(x, self.weight, indices)


class _RowsTimesExperts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, indices):
        ctx.save_for_backward(x, weight, indices)
        rows, chosen = x.reshape(-1, 1, x.shape[-1]), weight[indices.reshape(-1)]
        return torch.bmm(rows, chosen).reshape(*indices.shape, -1)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, indices = ctx.saved_tensors
        chosen, flat = weight[indices.reshape(-1)], indices.reshape(-1)
        rows, gradient = x.reshape(-1, 1, x.shape[-1]), gradient.reshape(flat.numel(), 1, -1)
        dx = torch.bmm(gradient, chosen.transpose(1, 2)).reshape(x.shape)
        dw = torch.bmm(rows.transpose(1, 2), gradient)
        return dx, torch.zeros_like(weight).index_add(0, flat, dw), None


class Grouped(Experts):
    """Rows sorted by expert, one torch._grouped_mm (F.grouped_mm): widths in multiples of 16 bytes."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        chosen = indices.reshape(-1)
        order = chosen.argsort()
        sizes = torch.zeros(self.weight.shape[0], device=x.device, dtype=torch.int32)
        ends = sizes.index_add(0, chosen, torch.ones_like(chosen, dtype=torch.int32)).cumsum(0, dtype=torch.int32)
        y = F.grouped_mm(x.reshape(-1, x.shape[-1])[order], self.weight, offs=ends)
        return y[order.argsort()].reshape(*indices.shape, -1)


class Dense(Experts):
    """Every row through every expert by torch.bmm, then the chosen results: E times the rows' work."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        rows = x.reshape(1, -1, x.shape[-1]).expand(self.weight.shape[0], -1, -1)
        y = torch.bmm(rows, self.weight)
        chosen = indices.reshape(1, -1, 1).expand(-1, -1, y.shape[-1])
        return y.gather(0, chosen)[0].reshape(*indices.shape, -1)
