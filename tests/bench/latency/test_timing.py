"""Interleaved timing: ABBA order, calls per block, rotation of inputs, graphs, and failures."""

from types import SimpleNamespace

import pytest

from headcount.bench.latency import timing
from headcount.bench.latency.timing import ImplFailed, TimedCall, interleave, is_lost


class Clock:
    """A clock that advances only when an implementation runs."""

    def __init__(self):
        self.now = 8.0
        self.log = []

    def impl(self, name, seconds, sets=1):
        def call(i):
            self.log.append((name, i))
            self.now += seconds(len(self.log)) if callable(seconds) else seconds

        return TimedCall(name, call, sets)


@pytest.fixture
def fake_clock(monkeypatch):
    """Replace the clock of the timed code."""
    clock = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def test_abba_order(fake_clock):
    seen = []
    impls = [fake_clock.impl("a", 1.0, 2), fake_clock.impl("b", 1.0, 2)]
    interleave(impls, blocks=4, device="cpu", on_block=seen.append)
    assert "".join(name for name, _ in fake_clock.log[-8:]) == "abbaabba" and seen == [0, 1, 2, 3]


def test_inputs_rotate_across_blocks(fake_clock):
    long, short = fake_clock.impl("long", 0.015, 3), fake_clock.impl("short", 0.001, 7)
    interleave([long, short], blocks=5, device="cpu")
    # a long call runs once in a block; a short one runs on every set equally often
    assert [i for name, i in fake_clock.log if name == "long"][-5:] == [0, 1, 2, 0, 1] and short.calls == 21
    assert short.wall_s == pytest.approx([0.001] * 5)


@pytest.mark.parametrize(
    "took, warm_up_s, calls",
    [
        # after the first call, which compiles, at least two calls; the longer one counts
        ((1 / 128, 1 / 512), 0.0, 3),
        ((1 / 2, 1 / 128), 1 / 4, 1),
        # the clock does not advance
        ((0.0, 0.0), 0.0, 1),
        # calls until warm_up_s have passed; the median of the last three counts
        ((1 / 8, 1 / 256, 1 / 128, 1 / 1024), 1 / 8 + 1 / 256 + 1 / 128 + 1 / 1024, 5),
        ((1 / 2, 1 / 128, 1 / 512, 1 / 64), 1 / 2 + 1 / 64 + 1 / 512, 3),
    ],
)
def test_warm_up_calibrates_calls_per_block(took, warm_up_s, calls, fake_clock):
    impl = fake_clock.impl("a", lambda n: (7.0, *took)[n - 1])
    timing._prepare(impl, "cpu", warm_up_s)
    # a block has 20 ms
    assert (len(fake_clock.log), impl.calls) == (1 + len(took), calls)


def on_device(device, kernels, waits=False):
    """Return an implementation of ``kernels`` operations on the fake device; with ``waits`` it also synchronizes."""
    names = ["kernel"] * kernels + ["nonzero"] * waits
    return TimedCall(f"{kernels} kernels", lambda i: [device.operation(name) for name in names])


@pytest.fixture
def side(cuda):
    """Make a side stream the current stream, as in a measurement."""
    cuda.current = cuda.new_stream()
    return cuda


def test_gpu_time_excludes_launch(side):
    few, many = on_device(side, 1), on_device(side, 12)
    interleave([few, many], blocks=3, device="cuda")
    # two events of calibration, then four blocks, of which the first is discarded
    assert side.log.count("event") == 2 * (2 + 2 * 4)
    # exactly 50 us for each kernel, without launches of kernels (20 us) or graphs
    assert few.gpu_s == pytest.approx([50e-6] * 3)
    assert many.gpu_s == pytest.approx([600e-6] * 3)


def test_wall_time_is_from_idle_device_to_idle_device(side):
    run = on_device(side, 12).run_block
    run()
    # a launch of 20 us, twelve kernels of 50 us, and the wait for them, without what was launched before
    assert timing.wall_s(run, "cuda") == pytest.approx(621e-6)


@pytest.mark.parametrize("waits, wall_blocks", [(False, 3), (True, 5)], ids=["graphs", "one-without"])
def test_wall_time_of_few_blocks_where_graphs_are_compared(waits, wall_blocks, side):
    impls = [on_device(side, 1), on_device(side, 2, waits)]
    interleave(impls, blocks=5, device="cuda")
    assert [(len(impl.wall_s), len(impl.gpu_s)) for impl in impls] == [(wall_blocks, 5)] * 2


def test_eager_calls_are_timed_each(side):
    one = on_device(side, 1, waits=True)
    interleave([one], blocks=3, device="cuda")
    # a kernel of 50 us behind the earlier call's, then a launch of 20 us after the host has waited for it
    assert one.calls > 1 and one.gpu_s == pytest.approx([121e-6] * 3, rel=0.02)


def test_failed_capture_restores_stream(side):
    side.capture_error = "operation failed due to a previous error during capture"
    first, second = on_device(side, 1), on_device(side, 1)
    interleave([first], blocks=1, device="cuda")
    assert side.current.name == "side 1" and first.graph is None
    assert first.graph_reason == side.capture_error and first.gpu_s
    side.capture_error = None
    interleave([second], blocks=1, device="cuda")
    assert second.graph_reason == f"an earlier capture failed in this process: {first.graph_reason}"


def test_error_of_the_next_synchronisation_names_its_impl(side):
    def fail(name):
        if name == "nonzero" and seen:
            side.failing = "an illegal memory access was encountered"

    seen, side.on_operation = [], fail
    # a call that synchronizes has no graph: it fails in an eager call of the second block
    impls = [on_device(side, 1), on_device(side, 2, waits=True), on_device(side, 3)]
    with pytest.raises(ImplFailed, match="illegal memory access") as raised:
        interleave(impls, blocks=2, device="cuda", on_block=seen.append)
    assert raised.value.impl is impls[1] and is_lost("cuda") and len(seen) == 1
