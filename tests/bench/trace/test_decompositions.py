"""Fused attention on meta under autograd: the operation that a CPU runs there, with the same arguments."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from headcount.bench.trace.decompositions import _on_cpu
from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def operations(device, make_mask=None, **options):
    query, key, value = (torch.ones(2, 3, length, 8, device=device) for length in (5, 7, 7))
    mask = make_mask(device) if make_mask else None

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    return list(record(module(attend), (query, key, value), backward=True).operations())


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}, {"is_causal": True, "scale": 0.25}])
def test_it_is_as_causal_and_scaled_as_the_cpus(options):
    def said(device):
        call = operations(device, **options)[0]
        assert call.name == FLASH
        return call.argument(3, "dropout_p", 0.0), call.argument(4, "is_causal", False), call.argument(6, "scale")

    assert said("meta") == said("cpu") == (0.0, "is_causal" in options, options.get("scale"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_it_has_the_same_mask_in_the_type_of_the_values(dtype):
    for device in ("cpu", "meta"):
        found = operations(device, lambda d: torch.zeros(5, 7, dtype=dtype, device=d))
        (mask,) = (call.argument(5, "attn_mask") for call in found if call.name == FLASH)
        assert (mask.shape, mask.dtype) == ((5, 7), "float32")


def test_a_mask_that_is_learned_keeps_the_scores():
    def learned(device):
        return torch.zeros(5, 7, device=device, requires_grad=True)

    names = [[call.name for call in operations(device, learned) if not call.backward] for device in ("cpu", "meta")]
    assert FLASH not in names[0] and names[0] == names[1]


def test_what_is_given_by_its_place_is_as_good_as_by_its_name():
    def found(*options):
        attend = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, *options))
        tensors = [torch.ones(2, 3, length, 8, device="meta") for length in (5, 7, 7)]
        return [call for call in record(attend, tensors, backward=True).operations() if call.name == FLASH]

    assert [call.argument(4, "is_causal") for call in found(0.0, True)] == [True]
    assert found(0.5) == []


def test_grouped_heads_take_the_kernel_that_they_take_on_a_cpu():
    def names(device):
        tensors = [torch.ones(2, heads, 5, 8, device=device) for heads in (6, 3, 3)]
        attend = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        return [call.name for call in record(attend, tensors, backward=True).operations()]

    assert names("meta") == names("cpu") and FLASH in names("cpu")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_mask_that_torch_refuses_is_refused(device):
    for dtype in (torch.int32, torch.float64):
        with pytest.raises(RuntimeError, match="attn_mask dtype"):
            operations(device, lambda d, dtype=dtype: torch.zeros(5, 7, dtype=dtype, device=d))


@pytest.mark.parametrize(("mask", "added"), [(None, None), ((5, 7), (5, 7)), ((3, 5, 7), (1, 3, 5, 7))], ids=str)
def test_heads_without_a_batch_are_a_batch_of_one_where_torch_fuses_them(mask, added, monkeypatch):
    """From torch 2.14 on it does."""
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: SDPBackend.FLASH_ATTENTION.value)
    query, key, value = (torch.ones(3, length, 8, device="meta") for length in (5, 7, 7))
    given = None if mask is None else torch.zeros(mask, device="meta")
    causal = given is None
    attend = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, given, 0.0, causal, scale=0.5))
    trace = record(attend, (query, key, value), backward=True)
    (call,) = (call for call in trace.operations() if call.name == FLASH)
    assert [fact.shape for fact in call.args[:3]] == [(1, 3, 5, 8), (1, 3, 7, 8), (1, 3, 7, 8)]
    found = call.argument(5, "attn_mask")
    assert (found and found.shape) == added
    assert (call.argument(3, default=0.0), call.argument(4, default=False)) == (0.0, causal)
    assert call.argument(6, "scale") == 0.5
    assert trace.out[0].shape == (3, 5, 8)


def test_what_stands_for_a_tensor_on_the_cpu_has_the_memory_of_one_row():
    tensor = torch.empty(2, 3, 5, 7, dtype=torch.bfloat16, device="meta")
    for learned in (False, True):
        found = _on_cpu(tensor.requires_grad_(learned))
        assert (found.shape, found.dtype, found.device.type) == (tensor.shape, tensor.dtype, "cpu")
        assert found.requires_grad is learned and found.stride(-1) == 1
        assert found.untyped_storage().nbytes() == 7 * 2
