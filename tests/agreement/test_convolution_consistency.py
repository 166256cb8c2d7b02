"""Light and dynamic convolutions: counted == closed form on a grid of primes, with every counter, and decoding."""

from itertools import product

import pytest
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench import accounts
from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.counters import base, headcount, registry
from headcount.bench.measure import measure
from headcount.formulas.ledger import Ledger
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.agreement.points import point_id

AXES = dict(
    kind=("light", "dynamic"), spelling=("windows", "band"), groups=((1, 11), (3, 5), (7, 1)), w=(1, 3, 29),
    F=(13, 17), T=(19, 23), S=(2, 31), B=(1, 5),
)  # fmt: skip
GRID = [
    dict(kind=kind, spelling=spelling, groups=groups, dm=groups * width, w=w, F=F, T=t, S=s, B=b)
    for kind, spelling, (groups, width), w, F, t, s, b in product(*AXES.values())
    # half of the other sizes at either batch
    if (F == 13) != (b == 5)
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


def own_additions(name, point):
    """What a counter adds, from the sizes alone: biases and ReLU, norms."""
    T, S, B, dm, F = (point[letter] for letter in ("T", "S", "B", "dm", "F"))
    biases = sum(B * n * (3 * dm + F + dm) for n in (T, S))
    norms = B * (2 * S + 3 * T) * dm
    relu = B * (T + S) * F
    return {
        "ptflops-pytorch": biases + norms + relu,
        "ptflops-aten": biases,
        "fvcore": 5 * norms,
        "torch": 0,
        "deepspeed": relu + 5 * norms,
    }[name]


@pytest.mark.parametrize("point", GRID, ids=point_id)
def test_counted_is_exact(point):
    case = case_at(point)
    model, inputs = build(case.config, device="meta"), example_inputs(case.config, case.lengths, device="meta")
    assert (case.ledger.macs, case.ledger.params) == (macs(point), params(point))
    assert sum(parameter.numel() for parameter in model.parameters()) == params(point)
    reading = registry.counter("torch").read(model, inputs, label=point_id(point))
    assert reading.macs == macs(point)


@pytest.mark.parametrize("name", registry.NAMES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("point", GRID[::17], ids=point_id)
def test_every_counter_reads_every_product(point, device, name):
    case, tool = case_at(point), registry.counter(name)
    # beside what it adds everywhere, ptflops bills its patched functions once more on meta
    twice = base.predict(tool, case.ledger, device) - base.predict(tool, case.ledger, tool.DEVICE)
    model, inputs = build(case.config, device=device), example_inputs(case.config, case.lengths, device=device)
    reading = tool.read(model, inputs, label=point_id(point))
    assert reading.macs == macs(point) + own_additions(name, point) + twice


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("point", GRID[::23], ids=point_id)
def test_our_own_count_knows_windows_from_other_products(point, device):
    case = case_at(point)
    model, inputs = build(case.config, device=device), example_inputs(case.config, case.lengths, device=device)
    found = headcount.read(model, inputs, label=point_id(point)).by_operator
    by_kind = case.ledger.group(lambda entry: entry.kind)
    assert found == {kind: macs for kind, macs in by_kind.items() if macs}
    assert ("conv" in found) == (point["spelling"] == "windows")


def test_the_grid_is_large_enough(figure):
    figure(f"formula consistency: {len(GRID)} points of convolutions")
    assert len(GRID) >= 100 and any(point["w"] > max(point["T"], point["S"]) for point in GRID)


@pytest.mark.parametrize("point", [GRID[0], GRID[-1]], ids=point_id)
def test_a_ledger_without_one_of_its_entries_is_not_the_count(point):
    form = case_at(point).ledger
    for i, entry in enumerate(form.entries):
        rest = Ledger(form.entries[:i] + form.entries[i + 1 :])
        assert (rest.macs != macs(point)) == bool(entry.macs)
        assert (rest.params != params(point)) == bool(entry.params)


def counted(call):
    with FlopCounterMode(display=False) as mode:
        call()
    return mode.get_total_flops() // 2


@pytest.mark.parametrize("point", [p for p in GRID if p["S"] == 31 and p["T"] == 19][::5], ids=point_id)
def test_decoding_costs_and_keeps_the_predicted(point):
    case, given = case_at(point), Assumptions(element_bytes=4)
    model = build(case.config)
    source, target = example_inputs(case.config, case.lengths).values()
    states, each, held, moved = [], [], [], 0
    prefill = counted(lambda: states.append(model.encode(source, max_len=19)))
    for n, token in enumerate(target.split(1, dim=1), 1):
        each.append(counted(lambda token=token: model.step(states[0], token)))
        held.append(sum(layer.num_bytes for layer in states[0].caches))
        step = accounts.step(case, n)
        moved += sum(e.size for e in step if e.kind in ("cache_read", "cache_write"))
        assert held[-1] == 4 * sum(e.size for e in step if e.kind == "cache")
    found, missing = accounts.values(
        ["kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs", "generate_bytes"], case, given
    )
    assert not missing
    assert (found["kv_bytes"], found["decode_macs"]) == (held[-1], each[-1])
    assert prefill == accounts.prefill_macs(case) and found["generate_macs"] == prefill + sum(each)
    # at the context a kernel of 3 is full, one of 29 is not
    assert found["kv_token_bytes"] == (4 * point["dm"] if point["w"] == 29 else 0)
    steps = [accounts.values(["decode_bytes"], case, Assumptions(n, None, 4))[0]["decode_bytes"] for n in range(1, 20)]
    assert found["generate_bytes"] == sum(steps)
    # cross-attention's keys and values, and of the convolution what came before and what is new
    B, dm, w = point["B"], point["dm"], point["w"]
    own = sum(min(n - 1, w - 1) + min(1, w - 1) for n in range(1, 20))
    assert moved == 19 * 2 * B * 31 * H * D + own * B * dm


@pytest.mark.parametrize("kind", ["light", "dynamic"])
def test_training_costs_three_forwards(kind):
    case = case_at(dict(GRID[0], kind=kind, T=5, S=7))
    model, inputs = build(case.config).train(), example_inputs(case.config, case.lengths)
    found = accounts.values(["training_macs"], case, Assumptions())[0]["training_macs"]
    assert counted(lambda: model(**inputs).sum().backward()) == found == 3 * case.ledger.macs


PUBLISHED = {"lightconv": (208_081_072, 2_082_764_800), "dynamicconv": (212_451_328, 2_126_510_080)}
TAPS, BANDS = 2_734_080, 1_331_200


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_models_in_both_spellings(name):
    params, macs = PUBLISHED[name]
    case, band = Case.of(name), Case.of(name, {"spelling": "band"})
    assert (case.ledger.params, case.ledger.macs) == (params, macs)
    difference = {}
    for form, sign in ((case.ledger, 1), (band.ledger, -1)):
        for kind, size in form.group(lambda entry: entry.kind).items():
            difference[kind] = difference.get(kind, 0) + sign * size
    assert {kind: size for kind, size in difference.items() if size} == {"conv": TAPS, "contraction": -BANDS}
    for one in (case, band):
        measured = measure(one, registry.NAMES)
        assert measured.disagreements(one.name) == []
        assert measured.counted_params == params
