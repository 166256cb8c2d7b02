"""Measure one timing case: a record for each implementation, with the reason where it was not timed."""

import gc
import json
from dataclasses import replace
from itertools import product
from statistics import median_high
from types import SimpleNamespace

import pytest
import torch

from headcount.bench.latency import case_tensors, correctness, measure, timing_cases
from headcount.bench.latency.implementations import ImplSpec
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.records import LatencyRecord
from headcount.formulas import moa
from headcount.models.configs.make import make_config
from tests.bench.latency import fake_cuda
from tests.bench.latency.conftest import ENVIRONMENT, PEAKS
from tests.cases import MODEL_FIELDS
from tests.processes import run_by_forks

pytestmark = pytest.mark.usefixtures("quick")
TINY = dict(seq_len=7, batch_size=2, dtype="float64", which="forward", device="cpu", routing="zipf")


def measure_layer(name="some", blocks=2, **changes):
    case = TimingCase("layer", name, **TINY | changes)
    found = measure.measure_case(case, PEAKS, environ=ENVIRONMENT, blocks=blocks)
    for one in found:
        assert LatencyRecord.from_json(json.loads(json.dumps(one.to_json()))) == one
    return {f"{one.role} {one.implementation}": one for one in found}


def on_gpu(name="some", **changes):
    return measure_layer(name, **{"device": "cuda", "dtype": "bfloat16", **changes})


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_record_for_each_impl(which, layers):
    found = measure_layer(which=which, blocks=3)
    # top 2 of 6 experts: the 2 tokens of a decode step have fewer rows than experts, 14 tokens have more
    impls = ["gathered"] * (which == "decode") + ["dense-all", "grouped", "loop"]
    assert list(found) == [*(f"subject {impl}" for impl in impls), "mqa fused", "mha fused", "mha-inner fused"]
    assert [found[f"subject {impl}"].implementation_used for impl in impls] == impls
    for record in found.values():
        assert record.status == "timed" and record.timed_by == "wall"
        assert record.which == which and record.blocks == 3
        assert len(record.wall_ms) == 3 and record.gpu_ms is None and record.smoke
        assert record.error < 1e-12 <= record.bound
        assert record.roofline_ms == pytest.approx(1000 * max(record.macs, record.least_bytes) / 1e9)
        # two sequences of seven tokens of 64 numbers, 8 bytes each
        turns = min(record.sets, record.calls_per_block)
        assert which == "decode" or record.rotated_bytes == turns * 2 * 7 * 64 * 8
    n = None if which != "decode" else 6
    T = 7 if n is None else 1
    form = moa.layer("", B=2, T=T, S=7, d_m=64, E=6, K=2, D=16, n=n)
    subject = found["subject grouped"]
    assert subject.macs == {"forward": 1, "both": 3, "decode": 1}[which] * form.macs
    assert subject.overhead["value"] > 0 and subject.overhead_by == "wall"
    assert found["mqa fused"].overhead is None
    assert subject.largest_share > 1 / 6 and found["mha fused"].largest_share is None
    assert subject.noise_floor == subject.noise_floor_wall
    assert list(subject.case_s) == ["prepare", "time", "profile"] and min(subject.case_s.values()) > 0


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_gpu_timing_by_graph_or_events(which, cuda):
    for record in on_gpu(which=which).values():
        assert record.status == "timed", record
        assert len(record.gpu_ms) == len(record.wall_ms) == 2
        assert record.peak_memory_bytes == cuda.memory
        waits = record.implementation == "loop"
        assert record.timed_by == ("events" if waits else "graph")
        assert record.no_graph_because == ("called a synchronizing CUDA operation" if waits else None)
        assert (record.replay_error is None) == waits
    assert cuda.current is cuda.main


def test_control_has_a_replay_error_of_its_own(cuda, monkeypatch):
    """It has the run of the first implementation, and is captured after it."""
    errors = iter((1e-5, 1e-4))
    monkeypatch.setattr(correctness, "replay_error", lambda run, captured: next(errors))
    (record,) = on_gpu("dense").values()
    assert record.replay_error == 1e-5


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_kernels_of_fastest_and_dense_are_recorded(which, layers):
    found = measure_layer(which=which, dtype="float32").values()
    profiled = [record for record in found if record.kernels]
    assert sorted(record.role for record in profiled) == ["mqa", "subject"]
    subject = min((r for r in found if r.role == "subject"), key=lambda r: median_high(r.wall_ms))
    assert subject in profiled
    for record in profiled:
        # operators of torch stand for kernels where there is no GPU
        names = [kernel["name"] for kernel in record.kernels]
        assert len(names) == len({*names}) and {"aten::mm", "aten::addmm", "aten::bmm"} & {*names}
        assert all(kernel["calls"] >= 1 and kernel["us"] > 0 for kernel in record.kernels)
    assert not any(record.kernels for record in measure_layer(which=which, blocks=0).values())


def test_failing_profiler_leaves_row_timed(layers, monkeypatch):
    def fail(**_):
        raise RuntimeError("CUPTI is not permitted")

    monkeypatch.setattr(measure, "profile", fail)
    found = measure_layer().values()
    assert {record.status for record in found} == {"timed"} and not any(record.kernels for record in found)


@pytest.mark.parametrize("batch_size, sets", [(4, 32), (16, 12)], ids=["at most 32 sets", "180 KiB of 16 each"])
def test_input_sets_exceed_gpu_cache(batch_size, sets, cuda, monkeypatch):
    """The fake device has a thousandth of the memory; rotated bytes exceed 1.5 times the L2 cache."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size // 1024
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=cache))
    monkeypatch.setattr(case_tensors, "ROTATED_BYTES", {"cuda": timing_cases.ROTATED_BYTES["cuda"] // 1024})
    monkeypatch.setattr(measure, "L2_SHARE", 1.5)
    (record,) = on_gpu("dense", which="decode", seq_len=4, batch_size=batch_size).values()
    # keys and values of B x 4 x 64 elements of 2 bytes; four matrices of weights, and what a call allocates
    one_set, calls = 2 * batch_size * 4 * 64 * 2, record.calls_per_block
    same = 4 * 64 * 64 * 2 + cuda.memory
    assert record.sets == sets >= calls
    assert record.rotated_bytes == calls * one_set
    assert calls * one_set + same >= 1.5 * cache > (calls - 1) * one_set + same


def test_collector_looks_only_at_what_a_case_makes(layers):
    """It runs before every capture, and takes longer than a layer where it looks at all modules."""
    gc.unfreeze()
    measure_layer()
    assert gc.get_freeze_count() > 10_000


def test_wrong_impl_has_no_time(layers, monkeypatch):
    check = correctness.CorrectnessCheck.check

    def wrong(self):
        found = check(self)
        return replace(found, error=0.5, bound=0.1, what="the output") if self.run.spec.impl == "loop" else found

    monkeypatch.setattr(correctness.CorrectnessCheck, "check", wrong)
    found = measure_layer()
    loop = found["subject loop"]
    assert loop.status == "wrong: relative error 5.0e-01 of the output, 1.0e-01 allowed"
    assert loop.wall_ms is loop.overhead is None and found["mha fused"].wall_ms
    assert [line for record in found.values() for line in record.failures] == [f"{loop.cell}, some loop: {loop.status}"]


def test_compiled_implementations_are_checked_and_timed(forks, tmp_path, monkeypatch):
    """Routing is recorded while torch traces the layer, and torch compiles a function for at most eight shapes."""
    # where kernels are interpreted, implementations for a GPU run on the CPU
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = run_by_forks(forks, tmp_path, 1, "tests.bench.latency.compiled_rows")
    assert done.returncode == 0, done.stderr
    cases = [("some", "forward"), ("all", "both"), ("heads", "forward"), ("dense", "both")]
    assert json.loads(done.stdout) == [[*case, "compiled", "timed"] for case in cases]


@pytest.mark.parametrize("error, status", [
    (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"), (MemoryError(), "out of memory"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out of memory"),
    (RuntimeError("cuDNN error: no plan\nmore"), "failed: RuntimeError: cuDNN error: no plan"),
    (ValueError(""), "failed: ValueError: no message"),
], ids=str)  # fmt: skip
def test_failing_impl_is_a_row(error, status, layers, monkeypatch):
    plain = measure.make_run

    def make_run(case, spec, shared):
        if spec.impl == "loop":
            raise error
        return plain(case, spec, shared)

    monkeypatch.setattr(measure, "make_run", make_run)
    found = measure_layer()
    assert found["subject loop"].status == status
    assert [r.status for r in found.values()].count("timed") == 5
    assert bool(found["subject loop"].failures) == status.startswith("failed")
    assert replace(found["subject loop"], blocks=0).failures


def test_lost_device_names_impl(cuda):
    def die(name):
        # only the loop calls nonzero; it fails after the first capture
        if name == "nonzero" and "capture on side 1" in cuda.log:
            cuda.dead = "an illegal memory access was encountered"
            cuda.check()

    cuda.on_operation = die
    with pytest.raises(
        measure.DeviceLost, match="^some loop: failed: AcceleratorError: CUDA error: an illegal memory access"
    ):
        on_gpu()


@pytest.mark.parametrize("device, dtype, which", [("cpu", "float64", "forward"), ("cuda", "bfloat16", "both")])
def test_model_is_timed(which, device, dtype, request, monkeypatch):
    if device == "cuda":
        request.getfixturevalue("cuda")
    config = make_config(MODEL_FIELDS["masked-mha"])
    monkeypatch.setattr(TimingCase, "impls", lambda self: [ImplSpec("tiny", config, "fused", "subject")])
    monkeypatch.setattr(TimingCase, "config", config)
    case = TimingCase("model", "tiny", **TINY | dict(which=which, routing="natural", device=device, dtype=dtype))
    (record,) = measure.measure_case(case, PEAKS, environ=ENVIRONMENT, blocks=2)
    assert record.status == "timed" and record.implementation_used == "fused"
    assert record.tokens == 14 and record.timed_by == {"cpu": "wall", "cuda": "graph"}[device]


@pytest.mark.parametrize("subject, drawn_on", [("layer", "cpu"), ("model", "cuda")])
def test_weights_of_models_are_drawn_on_their_device(subject, drawn_on, cuda, monkeypatch):
    """Those of a layer are the same on every device."""
    devices, plain = set(), fake_cuda.Generator.__new__

    def note(cls, device="cpu"):
        devices.add(str(device))
        return plain(cls, device)

    monkeypatch.setattr(fake_cuda.Generator, "__new__", note)
    config = make_config(MODEL_FIELDS["masked-mha"])
    config = config if subject == "model" else config.attention
    case = TimingCase(subject, "tiny", **TINY | {"device": "cuda"})
    case_tensors.CaseTensors(case, config).module(config, "fused")
    assert devices == {drawn_on}


def test_cases_of_models_share_weights_and_checks(monkeypatch):
    """Two routed models beside one dense model, each with parameters of its own, forward and in training."""
    dense = make_config(MODEL_FIELDS["masked-mha"])
    routed = {name: make_config(MODEL_FIELDS["masked-moa"] | {"num_layers": i}) for i, name in enumerate("ab", 1)}
    monkeypatch.setattr(
        TimingCase,
        "impls",
        lambda self: [
            ImplSpec(self.name, routed[self.name], "grouped", "subject"),
            ImplSpec("dense", dense, "fused", "dense"),
        ],
    )
    monkeypatch.setattr(TimingCase, "config", property(lambda self: routed[self.name]))
    built, plain = [], case_tensors.build

    def build(config, *, device, **how):
        if device != "meta":
            built.append(config)
        return plain(config, device=device, **how)

    monkeypatch.setattr(case_tensors, "build", build)
    shared, found = measure.Shared(), {}
    for name, which in product("ab", ("forward", "both")):
        case = TimingCase("model", name, **TINY | dict(which=which, routing="natural"))
        subject, other = measure.measure_case(case, PEAKS, environ=ENVIRONMENT, blocks=2, shared=shared)
        assert (subject.status, other.status) == ("timed", "timed")
        assert subject.to_dense["value"] > 0 and subject.to_dense_verdict and other.to_dense is None
        assert subject.checked_in is None
        found[name, which] = other
    assert built == [routed["a"], dense, routed["b"]]
    for which in ("forward", "both"):
        first, second = found["a", which], found["b", which]
        assert (first.checked_in, second.checked_in) == (None, first.cell)
        assert (first.error, first.bound, first.backends) == (second.error, second.bound, second.backends)


def test_layers_are_checked_at_every_length(layers):
    shared = measure.Shared()
    for seq_len in (7, 9):
        case = TimingCase("layer", "some", **TINY | {"seq_len": seq_len})
        found = measure.measure_case(case, PEAKS, environ=ENVIRONMENT, blocks=2, shared=shared)
        assert {one.checked_in for one in found} == {None}
