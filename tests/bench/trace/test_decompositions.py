"""Attention on meta under autograd runs the fused operation of a CPU, with the same arguments."""

import pytest
import torch
import torch.nn.functional as F

from headcount.bench.trace.record import record
from tests.bench.contractions.written import module

FLASH = "_scaled_dot_product_flash_attention_for_cpu"
MASKS = {
    "float mask": {"dtype": torch.float32},
    "boolean mask": {"dtype": torch.bool},
    "learned mask": {"requires_grad": True},
}
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled causal": {"is_causal": True, "scale": 0.25},
    "grouped heads": {"enable_gqa": True},
}


def operations(form, device):
    heads = (6, 3, 3) if form == "grouped heads" else (3, 3, 3)
    query, key, value = (torch.ones(2, h, length, 8, device=device) for h, length in zip(heads, (5, 7, 7), strict=True))
    options = dict(OPTIONS.get(form, {}))
    if form in MASKS:
        options["attn_mask"] = torch.zeros(5, 7, device=device, **MASKS[form])
    attend = module(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options))
    calls = record(attend, (query, key, value), backward=True).operations()
    return [call for call in calls if not call.backward]


@pytest.mark.parametrize("form", [*OPTIONS, *MASKS])
def test_meta_attention_runs_as_on_cpu(form):
    there, here = (operations(form, device) for device in ("meta", "cpu"))
    there, here = ([call for call in calls if call.name in (FLASH, "bmm")] for calls in (there, here))
    assert [call.name for call in there] == [call.name for call in here]
    assert {call.name for call in here} == {"bmm" if form == "learned mask" else FLASH}
    for one, other in zip(there, here, strict=True):
        for position, name, default in ((3, "dropout_p", 0.0), (4, "is_causal", False), (6, "scale", None)):
            assert one.argument(position, name, default) == other.argument(position, name, default)
        masks = [call.argument(5, "attn_mask") for call in (one, other)]
        assert len({mask and (mask.shape, mask.dtype) for mask in masks}) == 1
