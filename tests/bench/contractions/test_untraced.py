"""Computation outside the trace raises an error that names how data left; data from before the run does not."""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _python_dispatch

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.classify import UnsupportedError
from tests.bench.contractions.function_modules import Calls, module

A, B = torch.ones(7, 13), torch.ones(13, 11)


def by_numpy(a, b):
    return torch.from_numpy(a.numpy() @ b.numpy())


def by_lists(a, b):
    columns = list(zip(*b.tolist(), strict=True))
    return torch.tensor([[sum(x * y for x, y in zip(row, c, strict=True)) for c in columns] for row in a.tolist()])


def by_thread(a, b):
    out = []
    thread = threading.Thread(target=lambda: out.append(a @ b))
    thread.start()
    thread.join()
    return out[0]


def without_modes(a, b):
    with _python_dispatch._disable_current_modes():
        return a @ b


def without_dispatch(a, b):
    with torch._C._DisableTorchDispatch():
        return a @ b


def by_address(a, b):
    out = torch.empty(7, 11)
    assert out.data_ptr() and a.data_ptr()
    return out


def by_dlpack(a, b):
    return torch.from_numpy(np.from_dlpack(a) @ np.from_dlpack(b))


RUNNING = ThreadPoolExecutor(1)
RUNNING.submit(int).result()


@pytest.mark.parametrize(
    ("function", "way"),
    [
        (by_numpy, "Tensor.numpy"),
        (by_lists, "Tensor.tolist"),
        (by_thread, "Thread.start"),
        (lambda a, b: RUNNING.submit(lambda: a @ b).result(), "ThreadPoolExecutor.submit"),
        (without_dispatch, "torch._C._DisableTorchDispatch"),
        (without_modes, "_disable_current_modes"),
        (by_address, "Tensor.data_ptr"),
        (by_dlpack, "Tensor.__dlpack__"),
    ],
)
@pytest.mark.parametrize("use", [lambda y: y + 1, lambda y: y, lambda y: y.mT], ids=["used", "result", "view"])
def test_untraced_computation_raises(function, way, use):
    used = module(lambda a, b: use(function(a, b)))
    match = rf"data that left by .*{way} and came back.* on (7x11|11x7) \(in the model\)"
    with pytest.raises(UnsupportedError, match=match) as raised:
        count_macs(used, A, B)
    # only operators have formulas
    assert "formulas=" not in str(raised.value)
    allowed = count_macs(used, A, B, allow_unsupported=True)
    assert allowed.macs == 0 and len(allowed.unsupported) == 1


EXPORTS = {
    "numpy": lambda y: y.detach().numpy(),
    "tolist": lambda y: y.tolist(),
    "item": lambda y: y.sum().item(),
    "array": np.asarray,
    "dlpack": np.from_dlpack,
    "address": lambda y: y.data_ptr(),
    "thread": lambda y: RUNNING.submit(y.sum).result().item(),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_data_may_leave_after_the_last_product(export):
    assert count_macs(lambda x: export(x @ B @ B.mT), A).macs == 2 * 7 * 13 * 11


class Denoiser(nn.Module):
    """A block of convolutions with constants of its own, called at each step of a schedule."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Conv2d(5, 3, 1))
        self.frequencies = torch.ones(3, 1, 1)

    def forward(self, x, t):
        return self.body(x * self.frequencies * t)


@pytest.mark.parametrize("steps, shows_steps", [(1, True), (5, False), (5, True)])
def test_pipeline_counts_each_step(steps, shows_steps):
    denoiser = Denoiser().eval()

    def pipeline(x):
        shown = []
        for t in torch.linspace(1, 0, steps).tolist():
            x = x - 0.1 * denoiser(x, t)
            shown += [x.permute(0, 2, 3, 1).numpy()] if shows_steps else []
        return (x / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy(), shown

    assert count_macs(pipeline, torch.ones(2, 3, 8, 8)).macs == steps * 2 * 64 * (3 * 9 * 5 + 5 * 3)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_data_that_comes_back_between_products_raises(before):
    def run(x):
        for _ in range(before):
            x = x @ B @ B.mT
        return torch.from_numpy(x.numpy() * 2) @ B

    with pytest.raises(UnsupportedError, match=r"left by Tensor.numpy and came back, first used by"):
        count_macs(run, A)


def test_known_memory_that_is_written_after_it_left_raises():
    weight = torch.ones(13, 13)

    def run(x):
        y = x @ weight
        weight.numpy()[:] = y.numpy().T @ y.numpy()
        return y @ weight

    with pytest.raises(UnsupportedError, match=r"left by Tensor.numpy and came back, first used by"):
        count_macs(run, A)


def test_write_to_exported_buffer_raises():
    def write(m, a, b):
        np.matmul(a.numpy(), b.numpy(), out=m.out.numpy())
        return m.out

    with pytest.raises(UnsupportedError, match="data that left by Tensor.numpy"):
        count_macs(Calls(write, out=nn.Buffer(torch.zeros(7, 11))), A, B)


class BoundKernel(torch.autograd.Function):
    """A compiled kernel: the trace has only the memory of its output."""

    @staticmethod
    def forward(ctx, a, b):
        return a.new_empty(7, 11)


class UntracedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return without_dispatch(a, b)


@pytest.mark.parametrize("use", [lambda y: y + 1, lambda y: y], ids=["used", "result"])
@pytest.mark.parametrize("function", [BoundKernel, UntracedFunction])
def test_error_names_autograd_function(function, use):
    with pytest.raises(UnsupportedError, match=rf"autograd.Function {__name__}.{function.__name__} and came back"):
        count_macs(module(lambda a, b: use(function.apply(a, b))), A, B)


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        torch.distributed.all_gather_into_tensor(out, x)
        return out


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_collective_writes_its_output(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert count_macs(module(lambda a, b: Gathered.apply(a) @ b), A, B).macs == 7 * 13 * 11
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
def test_torch_code_may_disable_modes():
    def linearize(a, b):
        return torch.func.linearize(lambda x: x @ b, a)[1](a)

    assert not count_macs(module(linearize), A, B, allow_unsupported=True).unsupported


def test_forked_future_is_counted():
    def fork(a, b):
        return torch.jit.wait(torch.jit.fork(lambda a, b: a @ b, a, b)) + 1

    assert count_macs(module(fork), A, B).macs == 7 * 13 * 11


def test_data_from_before_the_run_is_allowed():
    def run(m, x):
        lengths = x[:, 0].long().tolist()
        return x @ m.constants[0] + torch.tensor(0.5) * len(lengths) + float(x.numpy().max())

    layer = Calls(run, constants=[torch.ones(13, 11)])
    assert count_macs(layer, A).macs == 7 * 13 * 11
    assert count_macs(module(lambda a: a @ B), A).macs == 7 * 13 * 11
    one_number = module(lambda a: torch.tensor(a.sum().tolist()) * a)
    assert not count_macs(one_number, A, allow_unsupported=True).unsupported


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool], ids=str)
def test_exported_integers_are_allowed(dtype):
    def by_lists(a):
        return torch.tensor(a.tolist(), dtype=dtype).mT.clone()

    found = count_macs(module(by_lists), torch.ones(7, 13, dtype=dtype), allow_unsupported=True).unsupported
    assert len(found) == (dtype not in (torch.int64, torch.bool))


CONSTANTS = {
    "tensor": lambda x: torch.tensor([2, 3, 5, 7, 11], dtype=x.dtype, device=x.device),
    "as_tensor": lambda x: torch.as_tensor([2.0, 3.0, 5.0, 7.0, 11.0], device=x.device),
    "new_tensor": lambda x: x.new_tensor([2.0, 3.0, 5.0, 7.0, 11.0]),
}


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_values_of_python_are_no_data_of_others(name, device):
    """On meta torch makes a tensor of values without an operation."""
    x = torch.ones(5, 2, device=device)
    assert count_macs(module(lambda x: x @ x.T / CONSTANTS[name](x)), x).macs == 5 * 5 * 2


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_data_of_another_thread_raises_as_a_tensor_too(device):
    asked, answered = SimpleQueue(), SimpleQueue()
    thread = threading.Thread(target=lambda: answered.put((lambda x: x @ x.T)(asked.get())))
    thread.start()

    def function(x):
        asked.put(x)
        return torch.as_tensor(answered.get(), device=x.device) / 2

    with pytest.raises(UnsupportedError, match="data that another thread or process computed"):
        count_macs(module(function), torch.ones(5, 2, device=device))
    thread.join()
