"""Kernels of a call: their multiply-accumulates are those of the closed form, and their number is as expected."""

from math import prod

import pytest
import torch
from torch.nn import functional as F

from headcount.bench.case import Case
from headcount.bench.counting.kernel_recorder import fuse, layer_kernels, moved, record_kernels
from headcount.bench.latency.implementations import layer_impls
from headcount.formulas.ledger import Entry
from headcount.models.configs.presets import preset
from headcount.models.kernels import triton_launch

LAYERS = ("mha-base", "moa-8K8E128D", "moa-8K32E128D", "moh-32x64-50")
B, T = 3, 41


def kernels(spec, which, shape=(B, T), keys=T):
    return layer_kernels(spec.config, spec.impl, shape, keys, torch.bfloat16, which)


def macs(found):
    return sum(one.times * one.macs for one in found)


SPECS = [spec for name in LAYERS for spec in layer_impls(name, None, None) if spec.impl not in ("loop", "ragged")]


def executed(spec, trains):
    """The entries that an implementation computes; MoH's kernels skip heads in the core of a forward pass alone."""
    lengths = {"batch_size": B, "tgt_len": T, "src_len": T}
    core = {"scores", "values"}
    if spec.label != "moh-32x64-50 triton":
        found = list(Case(spec.name, spec.executed, lengths).ledger)
        if spec.impl == "grouped" and not trains:
            # outputs of experts by gates in one call, which the closed form has as elementwise
            sizes = {"T": B * T, "K": spec.config.top_k, "d_m": spec.config.d_model}
            found.append(Entry("combine", "linear", sizes))
        return found
    every, selected = (Case(spec.name, config, lengths).ledger for config in (spec.config, spec.executed))
    cores = every if trains else selected
    return [one for one in every if one.kind not in core] + [one for one in cores if one.kind in core]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label.replace(" ", "-"))
def test_macs_of_kernels_equal_closed_form(spec):
    assert macs(kernels(spec, "forward")) == sum(one.macs for one in executed(spec, False))
    form = executed(spec, True)
    # fused attention computes the scores again
    again = sum(one.macs for one in form if one.kind == "scores")
    assert macs(kernels(spec, "both")) == 3 * sum(one.macs for one in form) + again


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.masks], ids=lambda spec: spec.label.replace(" ", "-"))
def test_decode_reads_the_cache_once(spec):
    short, long = (kernels(spec, "decode", (B, 1), keys) for keys in (1000, 1001))
    assert {one.core.keys for one in long if one.core} == {1001}
    more = sum(one.bytes for one in long) - sum(one.bytes for one in short)
    heads = getattr(spec.config, "num_kv_heads", None) or getattr(spec.config, "num_heads", 1)
    width = spec.config.head_dim or spec.config.d_model // spec.config.num_heads
    assert more == 2 * B * heads * width * 2


def test_dense_layer_has_five_kernels():
    (spec,) = layer_impls("mha-base", ["fused"], None)[:1]
    assert [one.kind for one in kernels(spec, "forward")] == ["product"] * 3 + ["core", "product"]
    both = kernels(spec, "both")
    assert [one.kind for one in both].count("core_backward") == 1
    assert [one.kind for one in both].count("product") == 12


def test_triton_operator_is_its_launches():
    triton = next(spec for spec in SPECS if spec.label == "moa-8K32E128D triton")
    names = [one.name for one in kernels(triton, "forward")]
    assert [name for name in names if name in ("route", "place", "expert", "slots")] == [
        "route", "place", "expert", "expert", "slots",
    ]  # fmt: skip


def test_grouped_takes_the_path_of_cuda():
    grouped = next(spec for spec in SPECS if spec.label == "moa-8K32E128D grouped")
    found = [one.name for one in kernels(grouped, "forward")]
    assert "route" in found and "sort" not in found and "topk" not in found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_auto_takes_kernels_of_16_bits(dtype):
    moh = next(spec.config for spec in SPECS if spec.name == "moh-32x64-50")
    found = [one.name for one in layer_kernels(moh, "auto", (B, T), T, dtype, "forward")]
    assert ("ragged" in found) == (dtype.itemsize == 2)


def test_expanded_dimension_is_read_once():
    assert moved(torch.empty(5, 1, device="meta").expand(5, 7)) == 5 * 4


def test_lookup_moves_the_rows_that_are_named():
    rows, table = torch.empty(7, dtype=torch.int64, device="meta"), torch.empty(1009, 16, device="meta")
    with record_kernels() as recorder:
        F.embedding(rows, table).relu()
    assert [one.bytes for one in recorder.kernels] == [8 * 7 + 4 * 2 * 7 * 16, 4 * 2 * 7 * 16]


@pytest.mark.parametrize("m, i, j, dtype, kind", [
    (5, 16, 24, torch.bfloat16, "product"), (5, 16, 20, torch.bfloat16, "product_unaligned"),
    (5, 20, 16, torch.bfloat16, "product_unaligned"), (5, 16, 20, torch.float32, "product"),
])  # fmt: skip
def test_rows_between_16_bytes_make_another_product(m, i, j, dtype, kind):
    x, w = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((m, i), (j, i)))
    with record_kernels() as recorder:
        F.linear(x, w)
    assert [one.kind for one in recorder.kernels] == [kind]


def test_fused_core_is_one_kernel_with_its_mask():
    q = torch.empty(2, 3, 11, 8, device="meta")
    mask = torch.empty(11, 11, dtype=torch.bool, device="meta")
    with record_kernels() as recorder:
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        F.scaled_dot_product_attention(q, q, q, is_causal=True)
    found = recorder.kernels
    assert [one.kind for one in found] == ["core", "core"]
    assert found[0].bytes == 4 * moved(q) + 121
    assert found[0].macs == 2 * prod((2, 3, 11, 11, 8))
    # T (T + 1) / 2 pairs
    assert found[1].macs == 2 * 2 * 3 * 8 * 11 * 12 // 2


CALLS = {
    "convolution": (F.conv2d, [(7, 3, 9, 9), (5, 3, 2, 2)], 7 * 5 * 8 * 8 * 3 * 2 * 2),
    "transposed": (F.conv_transpose1d, [(7, 3, 9), (3, 5, 2)], 7 * 9 * 3 * 5 * 2),
    "matrix-vector": (torch.mv, [(3, 5), (5,)], 3 * 5),
    "dot": (torch.dot, [(5,), (5,)], 5),
    "addbmm": (torch.addbmm, [(3, 7), (2, 3, 5), (2, 5, 7)], 2 * 3 * 5 * 7),
    "addmv": (torch.addmv, [(3,), (3, 5), (5,)], 3 * 5),
    "addr": (torch.addr, [(3, 5), (3,), (5,)], 3 * 5),
    "bilinear": (F.bilinear, [(2, 3), (2, 5), (7, 3, 5)], 7 * 2 * 3 * 5 + 7 * 2 * 5),
    "distances": (torch.cdist, [(31, 5), (29, 5)], 31 * 29 * (5 + 2)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), [(2, 3, 5), (2, 7, 5)], 2 * 3 * 5 * 7),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_product_has_its_macs(name):
    function, shapes, expected = CALLS[name]
    with record_kernels() as recorder:
        function(*(torch.empty(shape, device="meta") for shape in shapes))
    assert macs(recorder.kernels) == expected


def test_recording_changes_no_layer():
    config = preset("moa-8K32E128D").attention
    from headcount.models.kernels.selection import Selectable

    before = Selectable.is_available
    layer_kernels(config, "grouped", (1, 3), 3, torch.bfloat16, "forward")
    assert Selectable.is_available is before


def test_compiled_chain_is_one_kernel():
    x, w = torch.empty(64, 32, device="meta"), torch.empty(32, 32, device="meta")
    with record_kernels() as recorder:
        y = torch.relu(x * 2) + x
        z = (y @ w).sigmoid() * 3
        kept = z - 1
    assert kept.shape == z.shape
    assert [one.name for one in recorder.kernels] == ["mul", "relu", "add", "mm", "sigmoid", "mul", "sub"]
    first, product, second = fuse(recorder)
    # x is read, y is written
    assert (first.name, first.bytes) == ("mul+relu+add", 2 * moved(x))
    assert product.kind == "product"
    # the product is read, and only what nothing reads is written
    assert (second.name, second.bytes) == ("sigmoid+mul+sub", 2 * moved(z))


def test_separate_chains_stay_separate():
    x, y = torch.empty(64, device="meta"), torch.empty(32, device="meta")
    with record_kernels() as recorder:
        a, b = x * 2, y * 3
        c, d = a + 1, b + 1
    assert c.shape == x.shape and d.shape == y.shape
    assert sorted(one.bytes for one in fuse(recorder)) == [2 * 32 * 4, 2 * 64 * 4]


def test_compiled_layer_has_fewer_kernels_and_the_same_macs():
    config = preset("moa-8K8E128D").attention
    plain, compiled = (
        layer_kernels(config, impl, (2, 41), 41, torch.bfloat16, "both") for impl in ("dense-all", "compiled")
    )
    assert len(compiled) < len(plain) and macs(compiled) == macs(plain)
    assert sum(one.bytes for one in compiled) < sum(one.bytes for one in plain)


def test_kernels_are_known_without_triton(monkeypatch):
    config = preset("moa-8K32E128D").attention
    listed = layer_kernels(config, "triton", (2, 41), 41, torch.bfloat16, "both")
    monkeypatch.setattr(triton_launch, "find_spec", lambda name: None)
    monkeypatch.setattr(triton_launch, "_kernel", triton_launch._kernel.__wrapped__)
    assert layer_kernels(config, "triton", (2, 41), 41, torch.bfloat16, "both") == listed
