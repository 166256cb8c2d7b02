"""Fused attention on meta under autograd: the operation that a CPU runs there, with the same arguments."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

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
def test_meta_attention_has_cpu_options(options):
    def options_of(device):
        call = operations(device, **options)[0]
        assert call.name == FLASH
        return call.argument(3, "dropout_p", 0.0), call.argument(4, "is_causal", False), call.argument(6, "scale")

    assert options_of("meta") == options_of("cpu") == (0.0, "is_causal" in options, options.get("scale"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_meta_attention_has_cpu_mask(dtype):
    for device in ("cpu", "meta"):
        found = operations(device, lambda d: torch.zeros(5, 7, dtype=dtype, device=d))
        (mask,) = (call.argument(5, "attn_mask") for call in found if call.name == FLASH)
        assert (mask.shape, mask.dtype) == ((5, 7), "float32")


def test_learned_mask_is_not_fused():
    def learned(device):
        return torch.zeros(5, 7, device=device, requires_grad=True)

    names = [[call.name for call in operations(device, learned) if not call.backward] for device in ("cpu", "meta")]
    assert FLASH not in names[0] and names[0] == names[1]


def test_grouped_heads_take_cpu_kernel():
    def names(device):
        tensors = [torch.ones(2, heads, 5, 8, device=device) for heads in (6, 3, 3)]
        attend = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        return [call.name for call in record(attend, tensors, backward=True).operations()]

    assert names("meta") == names("cpu") and FLASH in names("cpu")


@pytest.mark.parametrize(("mask", "added"), [(None, None), ((5, 7), (5, 7)), ((3, 5, 7), (1, 3, 5, 7))], ids=str)
def test_three_dimensions_are_one_batch_where_fused(mask, added, monkeypatch):
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
