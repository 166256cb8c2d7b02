"""Measured peak bytes equal numbers by hand and closed forms, and are the same on meta and the CPU."""

import sys

import pytest
import torch

from headcount.bench import accounts, peaks
from headcount.bench.case import Case
from headcount.bench.peaks import measure
from headcount.bench.trace.memory import measure_activations
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS

MOH = dict(attention="moh", d_model=13, num_heads=10, num_shared_heads=2, top_k=3, num_kv_heads=5, head_dim=7)
IDEAL = MOH | dict(form="ideal")
LAYERS = {
    "mha": dict(attention="mha", d_model=21, num_heads=3, head_dim=7),
    "gqa": dict(attention="mha", d_model=13, num_heads=6, num_kv_heads=3, head_dim=5),
    "mqa": dict(attention="mha", d_model=13, num_heads=5, num_kv_heads=1, head_dim=7, bias=False),
    "moa": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5),
    "moa-biased": dict(attention="moa", d_model=13, num_experts=5, top_k=3, head_dim=7, bias=True),
    "moa-noisy": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5, noisy=True),
    "moh": MOH,
    "moh-ideal": IDEAL,
    "moh-ideal-query-norm": IDEAL | dict(num_kv_heads=1, router="query_norm"),
    "mla": dict(attention="mla", d_model=13, num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11),
    "switchhead": dict(attention="switchhead", d_model=13, num_heads=3, head_dim=5, num_experts=7, top_k=2),
    "mae": dict(attention="mae", d_model=13, num_heads=3, head_dim=5, gate_width=7),
}
CHUNKED = {
    "moa-512": dict(attention="moa", d_model=512, top_k=8, num_experts=32, head_dim=128),
    "moa-512-biased": dict(attention="moa", d_model=512, top_k=8, num_experts=8, head_dim=256, bias=True),
    "moh-768-ideal": IDEAL | dict(d_model=768, num_heads=12, num_shared_heads=3, top_k=6, num_kv_heads=12, head_dim=64),
}
"""Layers whose matrices are gathered in several chunks."""
MODELS = {name: MODEL_FIELDS[name] for name in ("translation-moa-noisy", "llama-moh-ideal", "dit")}
MODELS["translation-moa-noisy"] = MODELS["translation-moa-noisy"] | dict(dropout=0.1)

CLOSED_FORMS = {
    ("mha", 3, 11, 5, 4): (16056, 20880),
    ("gqa", 3, 11, 5, 4): (25560, 27360),
    ("mqa", 3, 11, 5, 4): (21300, 21536),
    ("moa", 3, 11, 5, 4): (39540, 78216),
    ("moa-biased", 3, 11, 5, 4): (50076, 101288),
    ("moa-noisy", 3, 11, 5, 4): (39540, 81120),
    ("moh", 3, 11, 5, 4): (56340, 71200),
    ("moh-ideal", 3, 11, 5, 4): (88680, 215160),
    ("moh-ideal-query-norm", 3, 11, 5, 4): (85320, 215589),
    ("moa-512", 1, 257, 257, 2): (7529168, 288323810),
    ("moa-512-biased", 1, 257, 257, 2): (10818672, 554002050),
    ("moh-768-ideal", 1, 257, 257, 2): (9377754, 394225718),
}
"""Forward and training peaks by layer, B, T, S and bytes per element, from schedules that took and freed each tensor of
the reference by name and size, in the order of its equations (headcount 0.2.0, formulas/activations)."""


def case_of(fields, *lengths):
    names = ("batch_size", "tgt_len", "src_len")
    if fields.get("model") == "llama":
        names, lengths = ("batch_size", "seq_len"), lengths[:2]
    elif fields.get("model") == "dit":
        names, lengths = ("batch_size",), lengths[:1]
    return Case("case", make_config(fields), dict(zip(names, lengths, strict=True)))


def both(case, element_bytes, device="meta"):
    how = dict(element_bytes=element_bytes, device=device, impl="reference")
    return tuple(measure(case, training=training, **how).peak_bytes for training in (False, True))


@pytest.mark.parametrize("sizes", CLOSED_FORMS, ids=lambda s: "{}-B{}-T{}-S{}-{}bytes".format(*s))
def test_measured_peaks_equal_closed_forms(sizes):
    name, *lengths, element_bytes = sizes
    assert both(case_of((LAYERS | CHUNKED)[name], *lengths), element_bytes) == CLOSED_FORMS[sizes]


@pytest.mark.parametrize("name", LAYERS | MODELS)
def test_meta_measures_what_the_cpu_allocates(name, monkeypatch):
    # a few rows in a chunk
    monkeypatch.setattr(peaks.experts, "GATHERED_BYTES", 3 * 13 * 5 * 4)
    case = case_of((LAYERS | MODELS)[name], *((2, 7, 7) if name in MODELS else (3, 11, 5)))
    assert both(case, 4, "meta") == both(case, 4, "cpu")


def test_peak_without_torch_is_a_dash(monkeypatch):
    monkeypatch.setitem(sys.modules, "headcount.bench.peaks", None)
    case = case_of(LAYERS["mha"], 2, 7, 7)
    found, missing = accounts.values(["peak_forward_bytes"], case, accounts.Assumptions())
    assert found == {"peak_forward_bytes": None}
    assert missing == {"peak_forward_bytes": "peak bytes are measured, which needs headcount.bench.peaks"}


@pytest.mark.parametrize("name", LAYERS | MODELS)
def test_saved_bytes_are_what_autograd_saves(name):
    case, storages = case_of((LAYERS | MODELS)[name], 2, 7, 5), {}
    model, inputs = build(case.config).train(), example_inputs(case.config, case.lengths)
    known = {
        tensor.untyped_storage().data_ptr() for tensor in (*inputs.values(), *model.parameters(), *model.buffers())
    }

    def save(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        out = model(**inputs)
    save(out)
    expected = sum(size for address, size in storages.items() if address not in known)
    found = measure(case, training=True, element_bytes=4, impl="reference").saved_bytes
    # the routers of MoA and MoH keep their logits and choices for the auxiliary losses
    assert found > expected if "mo" in name else found == expected


def test_recomputed_layers_keep_their_inputs():
    B, T, d_m, V, N = 2, 7, 13, 29, 3
    fields = dict(model="llama", d_ff=19, num_layers=N, vocab_size=V, attention="mha", d_model=d_m, num_heads=3)
    case = case_of(fields | dict(head_dim=6), B, T, T)
    found = measure(case, training=True, element_bytes=4, recompute=True)
    # the inputs of layers and last norm, both tables of angles, the norm's factor, its result with and without weight
    assert found.saved_bytes == 4 * ((N + 1) * B * T * d_m + 2 * T * 3 + B * T + 2 * B * T * d_m + B * T * V)
    whole = measure(case, training=True, element_bytes=4)
    assert found.saved_bytes < whole.saved_bytes and found.peak_bytes < whole.peak_bytes


def test_layers_run_the_implementation_to_train_with():
    B, T, d_m, E, D, K, each = 2, 64, 32, 8, 16, 2, 4
    moa = case_of(dict(attention="moa", d_model=d_m, num_experts=E, top_k=K, head_dim=D), B, T, T)
    mha = case_of(dict(attention="mha", d_model=d_m, num_heads=K, head_dim=D, bias=False), B, T, T)
    found = measure(mha, training=True, element_bytes=each).saved_bytes
    # queries, keys, values, heads' outputs and the output; a statistic of each row of scores in float32
    assert found == each * B * T * (4 * K * D + d_m) + 4 * B * K * T
    # no matrix for each token, and no score for each pair of tokens
    assert measure(moa, training=True, element_bytes=each).saved_bytes < each * B * T * K * D * d_m
    assert peaks.implementations(mha.config) == ["mha fused"]
    assert peaks.implementations(moa.config) == ["moa grouped"]
    assert peaks.implementations(case_of(IDEAL, 1, 7, 7).config) == ["ideal moh reference"]


def test_training_peak_has_the_gradients_of_weights():
    width = 1000
    weight = torch.nn.Linear(width, width, bias=False, device="meta")
    found = measure_activations(weight, (torch.zeros(1, width, device="meta"),), {}, training=True, element_bytes=2)
    assert found.peak_bytes == 2 * (width**2 + width)
