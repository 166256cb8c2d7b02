"""Correctness checks: outputs, gradients and routing against the reference, at the timed shape."""

import copy

import pytest
import torch

from headcount.bench.latency import measure
from headcount.bench.latency.case_tensors import CaseTensors
from headcount.bench.latency.correctness import CorrectnessCheck, error_bound, relative_error, relative_errors
from headcount.bench.latency.replay import RoutingReplay, trace_routing
from headcount.bench.latency.runs import make_run
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.kernels import fused, grouped
from tests.bench.latency import fake_cuda
from tests.bench.latency.conftest import ENVIRONMENT, PEAKS

SHAPE = dict(seq_len=10, batch_size=3, dtype="bfloat16", which="forward", device="cpu", routing="balanced")


def runs(name, **changes):
    case = TimingCase("layer", name, **SHAPE | changes)
    specs = case.impls()
    shared = CaseTensors(case, specs[0].config)
    return {f"{spec.role} {spec.impl}": make_run(case, spec, shared) for spec in specs}


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ["some", "all", "norms", "dense"])
def test_every_impl_agrees(name, dtype, which, layers):
    for label, run in runs(name, which=which, dtype=dtype).items():
        checked = CorrectnessCheck(run).check()
        assert checked.wrong is None and checked.error > 0, (label, checked)


def test_flipped_heads_are_replayed(layers):
    """A query-norm router cannot be steered: in bfloat16 some tokens choose other heads than in float64."""
    run = runs("norms", seq_len=60)["dense fused"]
    own, replayed = (error_of(run, replays) for replays in (False, True))
    assert own > 3 * replayed
    checked = CorrectnessCheck(run).check()
    assert checked.wrong is None
    assert checked.choices["clear"] < checked.choices["tokens"] and checked.choices["other"] == 0


def error_of(run, replays):
    x = run.inputs[0][-1:]
    found, chosen, _ = trace_routing(run.module, lambda: run.module(x))
    with torch.no_grad(), RoutingReplay(chosen if replays else [], 0.0):
        exact = run.shared.reference(run.spec.config)(x.double())
    return relative_error(found.detach(), exact)


def wrong_choice(routing):
    """Return a routing whose last expert of each token is replaced by one that was not chosen."""
    others = [next(e for e in range(6) if e not in row) for row in routing.indices.flatten(0, 1).tolist()]
    indices = routing.indices.clone()
    indices[..., -1] = torch.tensor(others).view(indices.shape[:2])
    return routing._replace(indices=indices)


def test_other_experts_are_wrong(layers):
    run = runs("some")["subject grouped"]
    router, plain = run.module.router, type(run.module.router).forward

    def forward(x, mask=None, **how):
        routing = wrong_choice(plain(router, x, mask, **how))
        router.record(routing, mask)
        return routing

    router.forward = forward
    checked = CorrectnessCheck(run).check()
    # ten tokens of the short input, and ten rows of three sequences
    assert checked.wrong == "wrong: other experts than the reference for 40 of 40 clear choices"


@pytest.mark.parametrize("place", ["short", "timed"])
def test_error_at_one_shape_is_found(place, layers, monkeypatch):
    """Kernels may differ between a single sequence and the whole batch."""
    plain = fused.fused_attend

    def attend(query, key, value, **how):
        out = plain(query, key, value, **how)
        return out * 1.1 if (query.shape[0] == 1) == (place == "short") else out

    monkeypatch.setattr(grouped, "fused_attend", attend)
    checked = CorrectnessCheck(runs("some")["subject grouped"]).check()
    assert checked.wrong and checked.what == ("the output" if place == "short" else "rows of the timed call")
    assert 0.05 < checked.error < 0.15


@pytest.mark.parametrize("what", ["dx", "dw"])
def test_wrong_gradient_is_found(what, layers, monkeypatch):
    from headcount.models.kernels import segments

    plain = segments.SpreadSegments.backward

    def backward(ctx, grad):
        dx, dw, db, none = plain(ctx, grad)
        return (1.5 * dx, dw, db, none) if what == "dx" else (dx, 1.5 * dw, db, none)

    monkeypatch.setattr(segments.SpreadSegments, "backward", staticmethod(backward))
    checked = CorrectnessCheck(runs("some", which="both", dtype="float32")["subject grouped"]).check()
    assert "gradient of q_proj.weight" in checked.what if what == "dw" else "input's gradient" in checked.what
    assert checked.wrong


def test_reference_has_same_gradient(layers, monkeypatch):
    found = runs("norms", which="both", dtype="float64")
    packed = found["subject ragged"]
    assert CorrectnessCheck(packed).check().wrong is None
    # in Eq. 10 unselected heads have a gradient above rounding errors
    monkeypatch.setattr(type(packed.spec), "reference", packed.spec.config)
    packed.shared.memo.clear()
    checked = CorrectnessCheck(packed).check()
    assert checked.wrong and checked.error > 1e-3 and "gradient" in checked.what


def test_wrong_decode_step_is_found(layers, monkeypatch):
    run = runs("some", which="decode", seq_len=16)["mqa fused"]
    assert CorrectnessCheck(run).check().wrong is None
    plain = run.module.forward

    def forward(x, cache):
        # leave out the oldest stored token
        other = copy.copy(cache)
        other.key, other.value, other.length = cache.key[:, 1:], cache.value[:, 1:], cache.length - 1
        return plain(x, cache=other)

    run.module.forward = forward
    assert CorrectnessCheck(run).check().wrong


@pytest.mark.parametrize(
    "dtype, plain, times, bound",
    [
        ("bfloat16", 5e-3, 1.0, 1e-2),  # twice the error of the plain reference
        ("bfloat16", 5e-2, 1.0, 2e-2),  # at most the cap of a layer
        ("bfloat16", 5e-2, 2.5, 5e-2),  # the cap of a model
        ("bfloat16", 1e-9, 1.0, 2e-3),  # at least MIN_BOUND
        ("bfloat16", float("nan"), 1.0, 2e-3),
        ("float32", 1e-4, 1.0, 1e-5),
    ],
)
def test_error_bound(dtype, plain, times, bound):
    assert error_bound(dtype, plain, times) == bound


def test_relative_error():
    zeros, ones = torch.zeros(3), torch.ones(3)
    assert relative_error(zeros, zeros) == 0 and relative_error(ones, zeros) == float("inf")
    assert relative_error(3 * ones, 2 * ones) == pytest.approx(0.5)
    # zero gradients are relative to the largest gradient, small ones to themselves
    assert relative_error(1e-3 * ones[:1], zeros[:1], scale=2.0) == pytest.approx(5e-4)
    assert relative_error(3e-3 * ones[:1], 2e-3 * ones[:1], scale=2.0) == pytest.approx(0.5)
    assert relative_errors([2 * ones, ones], [ones, 2 * ones]) == pytest.approx([1, 0.5])


def test_ties_are_not_clear_choices():
    scores = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.4, 0.1]]], dtype=torch.float64)
    with RoutingReplay([torch.tensor([[[1], [1]]])], 1e-6) as replay:
        weights, chosen = torch.topk(scores, 1)
    assert weights.tolist() == [[[0.5], [0.4]]] and chosen.tolist() == [[[1], [1]]]
    assert replay.counts == {"tokens": 2, "clear": 1, "other": 1}


@pytest.mark.parametrize("which", ["forward", "both", "decode"])
def test_stale_graph_is_wrong(which, cuda, monkeypatch):
    """The captured call computes on the host, which a replay does not repeat."""
    case = TimingCase("layer", "dense", **SHAPE | {"device": "cuda", "which": which})
    stale = {}
    kind = type(runs("dense", device="cuda", which=which)["subject fused"])
    plain = kind.call

    def call(self, i):
        if cuda.capturing:
            with fake_cuda.quiet():
                stale[i] = plain(self, i)
            return stale[i]
        return plain(self, i)

    monkeypatch.setattr(kind, "call", call)
    (record,) = measure.measure_case(case, PEAKS, environ=ENVIRONMENT, blocks=2)
    assert record.status.startswith("failed: RuntimeError: a replay on other inputs is off by")
    assert record.wall_ms is None
    (checked,) = measure.measure_case(case, None, environ=ENVIRONMENT, blocks=0)
    assert checked.status == "wrong: a replay on other inputs is not right"


def test_topk_choices_are_recorded():
    module, scores = torch.nn.Linear(5, 5), torch.tensor([[0.0, 7.0, 2.0, 5.0, 3.0]])
    found, chosen, backends = trace_routing(module, lambda: torch.topk(scores, 3).values.tolist())
    assert (found, [one.tolist() for one in chosen], backends) == ([[7.0, 5.0, 3.0]], [[[1, 3, 4]]], [])
