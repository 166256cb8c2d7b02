"""A fake CUDA device: tensors are on the CPU, and time passes only on the device's own clock.

Every operation takes a launch on the host and some time on the device, which runs behind the host. Events are points of
the device's time. A graph repeats the operations of its capture on replay, in the same memory, so that stale outputs,
frozen inputs and a launch inside the interval are found as on a GPU. Tests set faults: an error at once or at the next
synchronisation, a capture that fails.
"""

import contextlib
import functools
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

LAUNCH_S, KERNEL_S, CYCLES_PER_S = 20e-6, 50e-6, 1.9e9
WAITS = ("_local_scalar_dense", "nonzero", "bincount", "masked_select", "_unique2")
"""Operations that synchronize with the host."""
CUDA = torch.device("cuda", 0)


class Stream:
    def __init__(self, name):
        self.name = name

    def wait_stream(self, other):
        """Do nothing: operations are computed in their order."""


class Event:
    """A point of the device's time."""

    def __init__(self, device, enable_timing=False):
        self.device = device

    def record(self, stream=None):
        self.at = max(self.device.free, self.device.host)
        self.device.log.append("event")

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


@contextlib.contextmanager
def quiet():
    """Hide the operations of the block from the device."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


class Graph:
    """The operations of a capture, which take ``seconds`` on the device."""

    def __init__(self, device):
        self.device, self.operations, self.seconds = device, [], 0.0

    def replay(self):
        device = self.device
        device.check()
        # launching a graph takes longer for more nodes, and ends before the device begins
        device.host += 10e-6 + 1e-7 * len(self.operations)
        device.free = max(device.free, device.host) + self.seconds
        with quiet():
            for func, args, kwargs, outs in self.operations:
                found = func(*args, **kwargs)
                found = found if isinstance(found, tuple | list) else (found,)
                for old, new in zip(outs, found, strict=False):
                    if old is not None:
                        old.data.copy_(new)


class Device:
    """The device. ``log`` lists events and captures; ``host`` and ``free`` are the times of both clocks in seconds.

    ``on_operation`` is called with the name of every operation and may raise. ``capture_error`` is the message of an
    error that ends a capture, ``dead`` that of an error in every later call, and ``failing`` that of one from the next
    synchronisation.
    """

    def __init__(self):
        self.host = self.free = 0.0
        self.log, self.memory = [], 1000
        self.sync_mode, self.capturing = 0, None
        self.on_operation = lambda name: None
        self.capture_error = self.dead = self.failing = None
        self.main = Stream("default")
        self.current, self.number = self.main, 0

    def new_stream(self):
        self.number += 1
        return Stream(f"side {self.number}")

    def check(self):
        if self.dead:
            raise torch.AcceleratorError(f"CUDA error: {self.dead}")

    def synchronize(self, *_):
        self.dead = self.dead or self.failing
        self.check()
        self.host = max(self.host, self.free) + 1e-6

    def sleep(self, cycles):
        self.host += LAUNCH_S
        self.free = max(self.free, self.host) + cycles / CYCLES_PER_S

    def operation(self, name):
        """Launch one kernel."""
        self.check()
        self.on_operation(name)
        if name in WAITS:
            if self.capturing:
                raise RuntimeError("operation not permitted when stream is capturing")
            if self.sync_mode == "error":
                raise RuntimeError("called a synchronizing CUDA operation")
            self.synchronize()
        if self.capturing:
            self.capturing.seconds += KERNEL_S
            return
        self.host += LAUNCH_S
        self.free = max(self.free, self.host) + KERNEL_S

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def graph(self, graph, stream=None):
        assert stream is not None and stream is not self.main, "the default stream cannot be captured"
        assert stream is self.current, "autograd's nodes are bound to the stream that recorded them"
        self.synchronize()
        self.capturing, before = graph, self.current
        self.log.append(f"capture on {stream.name}")
        try:
            yield
        finally:
            self.capturing = None
            if self.capture_error:
                # torch 2.11 raises before it restores the stream
                self.current = Stream("lost")
                raise RuntimeError(self.capture_error)
            self.current = before


class Operations(TorchDispatchMode):
    """Mode that reports every kernel to the device, and records it in a graph."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        kwargs, device = kwargs or {}, self.device
        meta = any(isinstance(a, torch.Tensor) and a.is_meta for a in args)
        if meta or kwargs.get("device") == torch.device("meta"):
            return func(*args, **kwargs)
        view = _is_view(func)
        if not view:
            device.operation(func.overloadpacket.__name__)
        out = func(*args, **kwargs)
        outs = out if isinstance(out, tuple | list) else (out,)
        if device.capturing and not view:
            given = {a.data_ptr() for a in args if isinstance(a, torch.Tensor)}
            results = [o if isinstance(o, torch.Tensor) and o.data_ptr() not in given else None for o in outs]
            device.capturing.operations.append((func, args, kwargs, results))
        return out


@functools.cache
def _is_view(func):
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


class Tensors(TorchFunctionMode):
    """Mode that makes tensors on the CPU whose device is CUDA."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_function__(self, func, types_, args=(), kwargs=None):
        kwargs = {k: _here(v) for k, v in (kwargs or {}).items()}
        attribute = getattr(func, "__self__", None)
        if func is torch.Tensor.tolist:
            self.device.operation("_local_scalar_dense")
        if attribute is torch.Tensor.is_cuda:
            return not args[0].is_meta
        if attribute is torch.Tensor.device:
            return args[0].device if args[0].is_meta else CUDA
        return func(*(_here(a) for a in args), **kwargs)


def _here(value):
    if isinstance(value, torch.device) and value.type == "cuda" or isinstance(value, str) and value[:4] == "cuda":
        return torch.device("cpu")
    return value


class Generator(torch.Generator):
    """A generator of the CPU, on whatever device it is asked for."""

    def __new__(cls, device="cpu"):
        return torch._C.Generator(_here(device))


def install(monkeypatch):
    """Replace torch.cuda by the device until the test ends."""
    from headcount.bench.latency import estimate, implementations, measure, session, timing
    from headcount.models.kernels import selection

    device = Device()
    for name, value in {
        "is_available": lambda: True,
        "synchronize": device.synchronize,
        "Event": lambda enable_timing=False: Event(device),
        "Stream": device.new_stream,
        "CUDAGraph": lambda: Graph(device),
        "graph": device.graph,
        "stream": device.stream,
        "set_stream": lambda stream: setattr(device, "current", stream),
        "current_stream": lambda *_: device.current,
        "_sleep": device.sleep,
        "get_sync_debug_mode": lambda: device.sync_mode,
        "set_sync_debug_mode": lambda mode: setattr(device, "sync_mode", mode),
        "reset_peak_memory_stats": lambda *_: None,
        "memory_allocated": lambda *_: 100,
        "max_memory_allocated": lambda *_: 100 + device.memory,
        "get_device_name": lambda *_: "NVIDIA H200",
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: types.SimpleNamespace(
            name="NVIDIA H200", total_memory=150_754_820_096, multi_processor_count=132, L2_cache_size=62914560,
            major=9, minor=0, uuid="GPU-0",
        ),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    monkeypatch.setattr(torch, "Generator", Generator)
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: device.host))
    monkeypatch.setattr(timing, "WARM_UP_S", {"cuda": 1e-3})
    monkeypatch.setattr(timing, "CASE_WARM_UP_S", {"cuda": 1e-3})
    monkeypatch.setattr(timing, "capture_failures", [])
    # Triton kernels need a real device
    monkeypatch.setattr(implementations, "missing_on", lambda impl, where: "a real device" if impl.package else None)
    monkeypatch.setattr(selection.Selectable, "is_available", lambda *_: False)
    monkeypatch.setattr(session, "measure_peaks", lambda where, dtype: estimate.Peaks(4e14, 4e12, "invented", 4.4e12))
    monkeypatch.setattr(measure, "POISON_BYTES", 64)
    return device


@contextlib.contextmanager
def running(device):
    """Run the operations of the block on the device."""
    with Operations(device), Tensors(device):
        yield device
