"""Kernels of a ledger against those of a run on meta tensors, and by hand."""

import pytest
import torch

from headcount.bench.accounts import Assumptions, step
from headcount.bench.card_times import kernels_of
from headcount.bench.case import Case
from headcount.bench.counting.kernel_recorder import layer_kernels
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.implementations import ImplSpec, layer_impls
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import BFLOAT16, ClosedForm, total_macs, update
from headcount.formulas.backward import training_macs

H200 = HARDWARE["h200"]


def closed(case):
    return ClosedForm(case.ledger, BFLOAT16, lambda path: False)


def layer_case(config, batch_size, length):
    return Case("layer", config, {"batch_size": batch_size, "tgt_len": length, "src_len": length})


def expected(kernels):
    return model.load().expected_us(kernels, H200, "bfloat16")


DENSE = {
    spec.name: spec
    for name in ("mha-base", "moa-8K8E128D", "moh-32x64-50")
    for spec in layer_impls(name, None, None)
    if spec.impl == "fused" and not spec.config.routing_letters
}


@pytest.mark.parametrize("spec", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize("shape", [(8, 128), (3, 1000)], ids=str)
def test_dense_layer_has_the_kernels_of_a_run(spec, shape):
    found = closed(layer_case(spec.config, *shape))
    run = layer_kernels(spec.config, spec.impl, shape, shape[1], torch.bfloat16, "forward")
    assert sorted((one.kind, one.bytes, one.macs) for one in found.forward()) == sorted(
        (one.kind, one.bytes, one.macs) for one in run
    )
    both = layer_kernels(spec.config, spec.impl, shape, shape[1], torch.bfloat16, "both")
    assert total_macs([*found.forward(), *found.backward()]) == total_macs(both)
    assert expected([*found.forward(), *found.backward()]) == pytest.approx(expected(both), rel=0.05)


@pytest.mark.parametrize("name, impl", [
    ("moa-8K8E128D", "triton"), ("moa-8K32E128D", "triton"), ("moa-16K32E256D", "triton"), ("moh-32x64-50", "fused"),
])  # fmt: skip
@pytest.mark.parametrize("which", ["forward", "both"])
def test_routed_layer_is_near_a_run(name, impl, which):
    spec: ImplSpec = next(one for one in layer_impls(name, None, None) if one.label == f"{name} {impl}")
    found = closed(layer_case(spec.executed, 8, 2048))
    kernels = found.forward() if which == "forward" else [*found.forward(), *found.backward()]
    run = layer_kernels(spec.config, impl, (8, 2048), 2048, torch.bfloat16, which)
    assert expected(kernels) == pytest.approx(expected(run), rel=0.2)


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v2-lite", "moa-8K32E128D", "moh-dit-s2-75"])
def test_macs_are_those_of_the_ledger(name):
    case = Case.of(name, {}, {})
    found = closed(case)
    assert total_macs(found.forward()) == case.ledger.macs
    again = sum(entry.macs for entry in case.ledger if entry.kind in ("scores", "values")) // 2
    assert total_macs([*found.forward(), *found.backward()]) == training_macs(case.ledger) + again


@pytest.mark.parametrize("vocab_size, number", [(96, 0), (97, 1)])
def test_vocabulary_between_16_bytes_makes_another_product(vocab_size, number):
    case = Case.of("mlm-transformer", {"vocab_size": vocab_size}, {})
    assert sum(one.kind == "product_unaligned" for one in closed(case).forward()) == number


def test_causal_core_has_half_of_the_pairs():
    case = Case.of("llama3-8b", {}, {"seq_len": 1024})
    found = kernels_of(case, case.ledger, Assumptions()).forward()
    cores = [one for one in found if one.kind == "core"]
    assert [one.times for one in cores] == [32]
    # 32 heads of width 128, T (T + 1) / 2 pairs
    assert cores[0].macs == 2 * 32 * 128 * 1024 * 1025 // 2


def test_decode_step_reads_weights_and_cache():
    case = Case.of("llama3-8b", {}, {"seq_len": 4096, "batch_size": 16})
    given = Assumptions(cache_bytes=1)
    found = kernels_of(case, step(case, 4096), given).forward()
    (core,) = [one for one in found if one.kind == "decode"]
    cache, q = 16 * 4096 * 2 * 8 * 128, 16 * 32 * 128
    assert core.bytes == cache + 2 * 2 * q
    moved = sum(one.times * one.bytes for one in found if one.kind == "product")
    # every weight but those of norms and of the embedding, and the activations of 16 tokens
    weights = case.ledger.params - 128256 * 4096 - 65 * 4096
    assert 2 * weights < moved < 2 * weights * 1.01


def test_update_reads_and_writes_states():
    recipe = {"weights": 2, "gradients": 2, "master weights": 4, "two moments": 8}
    assert update(1000, recipe).bytes == 1000 * (16 + 14)


@pytest.mark.parametrize("preset", ["lightconv", "dynamicconv"])
def test_channel_of_a_convolution_reads_its_own_inputs(preset):
    case = Case.of(preset, {}, {"seq_len": 50})
    entries = [entry for entry in case.ledger if entry.kind == "conv"]
    found = [one for one in closed(case).forward() if one.name in {entry.path for entry in entries} and one.macs]
    for kernel, entry in zip(found, entries, strict=True):
        # inputs, results and the kernels that are weights, 2 bytes each
        assert kernel.bytes == 2 * (2 * 50 * 1024 + entry.params)
