"""Static implementations read nothing back from the device and keep every shape."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.models.build import build
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.kernels import grouped

CONFIGS = {
    "K3-E7-dm24-D8": MixtureOfAttentionHeadsConfig(d_model=24, num_experts=7, top_k=3, head_dim=8, bias=True),
    "K3-E7-dm11-D5": MixtureOfAttentionHeadsConfig(d_model=11, num_experts=7, top_k=3, head_dim=5),
    "K5-E5-dm11-D3": MixtureOfAttentionHeadsConfig(d_model=11, num_experts=5, top_k=5, head_dim=3),
}
# each makes the host wait for the device, or gives a shape that depends on values
READS_BACK = {"_local_scalar_dense", "item", "nonzero", "bincount", "masked_select", "unique", "_unique2", "histc"}

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="synchronisation is CUDA's; meta is its CPU twin")


class Operations(TorchDispatchMode):
    """Every dispatched operation, with the shapes of its results."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else (out,)
        shapes = tuple(tuple(t.shape) for t in tensors if isinstance(t, torch.Tensor))
        self.seen.append((func.overloadpacket.__name__, shapes))
        return out


def recorded(layer, query, backward=True):
    layer.zero_grad()
    operations = Operations()
    with operations:
        y = layer(query, key_padding_mask=torch.zeros(query.shape[:2], dtype=torch.bool, device=query.device))
        if backward:
            y.sum().backward()
    return operations.seen


@pytest.fixture
def cuda_path(monkeypatch):
    monkeypatch.setattr(grouped, "has_fast_path", lambda device, dtype: True)


@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.parametrize("impl", ["dense-all", "grouped"])
def test_shapes_are_static_without_host_reads(impl, case, cuda_path):
    layer = build(CONFIGS[case], impl=impl)
    queries = [torch.randn(3, 13, layer.config.d_model, generator=torch.Generator().manual_seed(s)) for s in (1, 2)]
    with torch.no_grad():
        chosen = [layer.router(query).indices.sort().values for query in queries]
    assert layer.config.top_k == layer.config.num_experts or not torch.equal(*chosen)
    first, second = (recorded(layer, query.requires_grad_()) for query in queries)
    assert first == second
    assert not {name for name, _ in first} & READS_BACK


@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.parametrize("impl", ["dense-all", "grouped", "gathered"])
def test_static_impls_run_on_meta(impl, case):
    layer = build(CONFIGS[case], device="meta", dtype=torch.bfloat16, impl=impl)
    query = torch.empty(3, 13, layer.config.d_model, device="meta", dtype=torch.bfloat16, requires_grad=True)
    padding = torch.empty(3, 13, device="meta", dtype=torch.bool)
    for causal in (False, True):
        y = layer(query, causal=causal, key_padding_mask=padding, query_padding_mask=padding)
        assert y.shape == query.shape and y.dtype == torch.bfloat16
        y.sum().backward()
        assert query.grad.shape == query.shape


def test_loop_raises_on_meta():
    layer = build(CONFIGS["K3-E7-dm11-D5"], device="meta", impl="loop")
    with pytest.raises(NotImplementedError, match="nonzero"):
        layer(torch.empty(3, 13, 11, device="meta"))


def test_plan_sorts_tokens_by_expert():
    indices = torch.tensor([[[4, 1], [1, 0]], [[1, 4], [4, 0]]])
    plan = grouped.make_plan(indices, 7)
    assert plan.order.tolist() == [3, 7, 1, 2, 4, 0, 5, 6]
    assert plan.order[plan.inverse].tolist() == list(range(8))
    assert plan.tokens.tolist() == [1, 3, 0, 1, 2, 0, 2, 3]
    assert plan.offsets.tolist() == [2, 5, 5, 5, 8, 8, 8]
    assert plan.offsets.dtype == torch.int32


@needs_cuda
@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.parametrize("impl", ["dense-all", "grouped"])
def test_cuda_graph_capture(impl, case):
    layer = build(CONFIGS[case], device="cuda", dtype=torch.bfloat16, impl=impl)
    if impl == "grouped" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("grouped matrix products are one kernel from compute capability 9.0 on")
    query = torch.randn(3, 13, layer.config.d_model, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer(query).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(query).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        captured = layer(query)
    graph.replay()
    torch.testing.assert_close(captured, layer(query).detach())
