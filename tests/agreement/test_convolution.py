"""Light and dynamic convolutions: counted == closed form on a grid of primes, with every counter, and decoding."""

from itertools import product

import pytest
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench import accounts
from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.counters.run_context import run_counter
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import cache_bytes

AXES = ("light", "dynamic"), ("windows", "band"), ((1, 11), (3, 5), (7, 1)), (1, 3, 29)
# F, T, S, B, in turns
SIZES = [(13, 19, 31, 1), (17, 23, 2, 5), (17, 19, 31, 5), (13, 23, 2, 1)]
GRID = [
    dict(kind=kind, spelling=spelling, groups=groups, dm=groups * width, w=w)
    | dict(zip("FTSB", SIZES[i % 4], strict=True))
    for i, (kind, spelling, (groups, width), w) in enumerate(product(*AXES))
]
V, H, D = 37, 2, 7


def case_at(point):
    sizes = dict(
        d_model=point["dm"], d_ff=point["F"], num_weight_heads=point["groups"], vocab_size=V, num_heads=H, head_dim=D,
        encoder_kernel_sizes=(point["w"],), decoder_kernel_sizes=(point["w"],), convolution=point["kind"],
        spelling=point["spelling"], bias=False,
    )  # fmt: skip
    config = make_config(dict(model="convolution", attention="mha") | sizes)
    return Case("conv", config, {"batch_size": point["B"], "src_len": point["S"], "tgt_len": point["T"]})


def block_macs(n, kind, spelling, groups, dm, w, B, **_):
    taps = n if spelling == "band" else w
    kernels = dm * groups * w if kind == "dynamic" else 0
    return B * n * (2 * dm * dm + kernels + dm * taps + dm * dm)


def macs(point):
    T, S, B, dm, F = (point[letter] for letter in ("T", "S", "B", "dm", "F"))
    sides = sum(block_macs(n, **point) + 2 * B * n * dm * F for n in (S, T))
    cross = 2 * B * T * dm * H * D + 2 * B * S * dm * H * D + 2 * B * H * T * S * D
    return sides + cross + B * T * dm * V


def params(point):
    dm, F, groups, w = (point[letter] for letter in ("dm", "F", "groups", "w"))
    kernels = groups * w * (dm if point["kind"] == "dynamic" else 1)
    layer = 3 * dm * dm + 3 * dm + kernels + 2 * dm * F + F + dm
    return V * dm + 2 * layer + 4 * dm * H * D + (2 + 3) * 2 * dm


@pytest.mark.parametrize("point", GRID, ids=str)
def test_counts_match_hand_formula(point):
    case = case_at(point)
    model, inputs = build(case.config, device="meta"), example_inputs(case.config, case.lengths, device="meta")
    assert (case.ledger.macs, case.ledger.params) == (macs(point), params(point))
    assert sum(parameter.numel() for parameter in model.parameters()) == params(point)
    reading = run_counter(registry.counter("torch"), model, inputs, label=str(point))
    assert reading.macs == macs(point)


def count_calls(call):
    with FlopCounterMode(display=False) as mode:
        call()
    return mode.get_total_flops() // 2


@pytest.mark.parametrize("point", [p for p in GRID if p["S"] == 31][::5], ids=str)
def test_decoding_counts_and_cache(point):
    case, given = case_at(point), Assumptions(element_bytes=4)
    model = build(case.config)
    source, target = example_inputs(case.config, case.lengths).values()
    states, each, stored, moved = [], [], [], 0
    prefill = count_calls(lambda: states.append(model.encode(source, max_len=19)))
    for n, token in enumerate(target.split(1, dim=1), 1):
        each.append(count_calls(lambda token=token: model.step(states[0], token)))
        stored.append(cache_bytes(*states[0].caches))
        step = accounts.step(case, n)
        moved += sum(e.size for e in step if e.kind in ("cache_read", "cache_write"))
        assert stored[-1] == 4 * sum(e.size for e in step if e.kind == "cache")
    found, missing = accounts.values(
        ["kv_bytes", "kv_token_bytes", "prefill_macs", "decode_macs", "generate_macs", "generate_bytes"], case, given
    )
    assert not missing
    assert (found["kv_bytes"], found["decode_macs"]) == (stored[-1], each[-1])
    assert prefill == found["prefill_macs"] and found["generate_macs"] == prefill + sum(each)
    # at the context a kernel of 3 is full, one of 29 is not
    assert found["kv_token_bytes"] == (4 * point["dm"] if point["w"] == 29 else 0)
    steps = [accounts.values(["decode_bytes"], case, Assumptions(n, None, 4))[0]["decode_bytes"] for n in range(1, 20)]
    assert found["generate_bytes"] == sum(steps)
    # keys and values of cross-attention, and earlier and new inputs of the convolution
    B, dm, w = point["B"], point["dm"], point["w"]
    own = sum(min(n - 1, w - 1) + min(1, w - 1) for n in range(1, 20))
    assert moved == 19 * 2 * B * 31 * H * D + own * B * dm


@pytest.mark.parametrize("name, params, macs", [
    ("lightconv", 208_081_072, 2_082_764_800), ("dynamicconv", 212_451_328, 2_126_510_080)
])  # fmt: skip
def test_published_models_in_both_formulations(name, params, macs):
    windows, band = Case.of(name).ledger, Case.of(name, {"spelling": "band"}).ledger
    assert (windows.params, windows.macs, band.params) == (params, macs, params)
    assert windows.macs - band.macs == 2_734_080 - 1_331_200  # taps of windows, products of bands
