"""The expected time of a training step under a plan, by hand arithmetic on what ranks compute and send."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from headcount.bench.accounts import RECIPES
from headcount.bench.budget.plans import plans
from headcount.bench.case import Case
from headcount.bench.hardware import HARDWARE
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import BFLOAT16, ClosedForm, update
from headcount.bench.performance.plan_time import Cluster, PlanTimes, sent_by, span
from headcount.formulas.plan import PlanError, parse
from headcount.formulas.rank import Ranks

RECIPE = RECIPES["adamw-mixed"]
H100 = HARDWARE["h100"]
CLUSTER = Cluster(H100, 450e9, 50e9, node=8)
CASE = Case.of("llama3-8b", {}, {"seq_len": 2048})
LAUNCH = model.load().values["launch"]


def is_causal(path):
    return path.endswith("self_attn")


def expected_us(kernels):
    return model.load().expected_us(kernels, H100, "bfloat16")


def step(text, cluster=CLUSTER, within=True):
    costs = Ranks(CASE.ledger).costs(parse(text))
    times = PlanTimes(cluster, RECIPE, is_causal)
    return times.step(costs, [sent_by(cost) for cost in costs], lambda axis: 8 if within else 16)


def kernels_us(cost):
    closed = ClosedForm(cost.ledger, BFLOAT16, is_causal)
    return expected_us([*closed.forward(), *closed.backward()])


def test_one_rank_computes_and_updates():
    (cost,) = Ranks(CASE.ledger).costs(parse("mb=4"))
    found = step("mb=4")
    wanted = 4 * kernels_us(cost) + expected_us([update(CASE.ledger.params, RECIPE)])
    assert found.expected_s == pytest.approx(wanted / 1e6)
    assert (found.collectives_s, found.stages_s) == (0, 0)
    assert found.least_s < found.expected_s


def test_tensor_parallel_waits_for_its_collectives():
    (cost,) = Ranks(CASE.ledger).costs(parse("tp=8,sp"))
    moved = [one for one in cost.transfers if one.axis == "tp" and one.phase != "sync"]
    waits = sum(1e6 * 2 * one.sent / 450e9 + one.times * LAUNCH for one in moved)
    assert step("tp=8,sp,mb=3").collectives_s == pytest.approx(3 * waits / 1e6)
    slower = step("tp=8,sp,mb=3", within=False)
    assert slower.collectives_s > 5 * step("tp=8,sp,mb=3").collectives_s


@pytest.mark.parametrize("span, rate", [(1, 300e9), (2, 300e9), (3, 31e9), (8, 31e9), (9, 25e9)])
def test_bridge_joins_two_cards(span, rate):
    bridged = replace(HARDWARE["a100-pcie"], bridge_bytes_per_s=300e9)
    assert Cluster(bridged, 31e9, 25e9, node=8).bytes_per_s(span) == rate
    assert Cluster(replace(bridged, bridge_bytes_per_s=None), 31e9, 25e9, node=8).bytes_per_s(2) == 31e9


def test_statement_names_each_link():
    text = Cluster(HARDWARE["a100-pcie"], 31e9, 25e9, node=8).statement()
    assert (
        "300 GB/s each way between the two cards of an NVLink bridge, 31 GB/s" in text and "8 cards (assumed)" in text
    )
    assert "bridge" not in CLUSTER.statement() and "assumed" not in CLUSTER.statement()


def test_gradients_are_summed_beside_the_backward_pass():
    one, many = step("mb=2"), step("dp=2,mb=2")
    # 16 GB at 450 GB/s are shorter than the backward pass
    assert many.expected_s == pytest.approx(one.expected_s)
    slow = replace(CLUSTER, within_bytes_per_s=1e9)
    (cost,) = Ranks(CASE.ledger).costs(parse("dp=2"))
    sums = [item for item in cost.transfers if item.phase == "sync"]
    sent_s = sum(2 * item.sent / 1e9 + item.times * LAUNCH / 1e6 for item in sums)
    backward = expected_us(ClosedForm(cost.ledger, BFLOAT16, is_causal).backward()) / 1e6
    assert step("dp=2,mb=2", slow).expected_s == pytest.approx(one.expected_s + sent_s - backward)


def test_pipeline_waits_for_other_stages():
    found = step("pp=4,mb=8")
    slowest = max(kernels_us(cost) for cost in Ranks(CASE.ledger).costs(parse("pp=4"))) / 1e6
    assert found.stages_s == pytest.approx(3 * slowest)
    assert found.expected_s >= 11 * slowest
    # more microbatches wait for a smaller share
    assert step("pp=4,mb=80").stages_s == pytest.approx(found.stages_s)


def test_recomputation_runs_layers_again():
    plain, again = step("mb=2"), step("mb=2,recompute=full")
    (cost,) = Ranks(CASE.ledger).costs(parse("recompute=full"))
    extra = expected_us(ClosedForm(cost.again, BFLOAT16, is_causal).forward())
    assert again.expected_s - plain.expected_s == pytest.approx(2 * extra / 1e6)


def test_context_parallel_has_half_of_the_causal_pairs():
    whole, divided = (
        sum(one.times * one.macs for one in ClosedForm(cost.ledger, BFLOAT16, is_causal, cp).forward() if one.core)
        for cp, plan in ((False, "dp=1"), (True, "cp=4"))
        for cost in Ranks(CASE.ledger).costs(parse(plan))
    )
    assert divided == pytest.approx(whole / 4, rel=1e-3)


def pass_s(cost):
    """Seconds of the kernels of a forward and of a backward pass, recomputation included."""
    closed, again = (
        ClosedForm(form, BFLOAT16, is_causal, divides_queries=cost.plan.cp != 1) for form in (cost.ledger, cost.again)
    )
    more = again.forward() if cost.plan.recompute == "full" else []
    return expected_us(closed.forward()) / 1e6, expected_us([*closed.backward(), *more]) / 1e6


def update_s(cost):
    return expected_us([update(cost.held["optimizer"], RECIPE)]) / 1e6


def sent_s(cost, rate, kind, phase):
    """Seconds of the collectives of one kind and phase, without a pipeline or other axes than dp."""
    own = [one for one in cost.transfers if (one.kind, one.phase) == (kind, phase)]
    return sum(2 * one.sent / rate + one.times * LAUNCH / 1e6 for one in own)


RATES = (1e9, 3e9, 12.5e9, 450e9)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("microbatches", [1, 8])
def test_first_forward_pass_hides_updated_weights(rate, microbatches):
    (cost,) = Ranks(CASE.ledger).costs(parse("dp=16,zero=1"))
    forward, backward = pass_s(cost)
    gathers, sums = sent_s(cost, rate, "all_gather", "sync"), sent_s(cost, rate, "reduce_scatter", "sync")
    assert gathers > 15e9 / rate and sums > 15e9 / rate
    waits = max(0, gathers - forward) + max(0, sums - backward)
    found = step(f"dp=16,zero=1,mb={microbatches}", replace(CLUSTER, within_bytes_per_s=rate))
    assert found.collectives_s == pytest.approx(waits)
    assert found.expected_s == pytest.approx(microbatches * (forward + backward) + waits + update_s(cost))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("more", ["", ",recompute=full"])
def test_kernels_hide_gathers_and_sums_once(rate, more):
    (cost,) = Ranks(CASE.ledger).costs(parse("dp=16,fsdp" + more))
    forward, backward = pass_s(cost)
    before, after = (sent_s(cost, rate, "all_gather", phase) for phase in ("forward", "backward"))
    sums = sent_s(cost, rate, "reduce_scatter", "sync")
    ends = max(forward, before) + max(backward, after + sums)
    wanted = 7 * (max(forward, before) + max(backward, after)) + ends + update_s(cost)
    found = step("dp=16,fsdp,mb=8" + more, replace(CLUSTER, within_bytes_per_s=rate))
    assert found.expected_s == pytest.approx(wanted)


@pytest.mark.parametrize("rate", RATES)
def test_forward_pass_hides_gathered_weights(rate):
    (cost,) = costs = Ranks(CASE.ledger).costs(parse("dp=16,fsdp"))
    times = PlanTimes(replace(CLUSTER, within_bytes_per_s=rate), RECIPE, is_causal)
    _, found = times.forward_us(costs, lambda axis: 8)
    wanted = max(pass_s(cost)[0], sent_s(cost, rate, "all_gather", "forward"))
    assert found / 1e6 == pytest.approx(wanted)


def test_forward_pass_waits_for_sends_between_stages():
    costs = Ranks(CASE.ledger).costs(parse("pp=4"))
    _, found = PlanTimes(CLUSTER, RECIPE, is_causal).forward_us(costs, lambda axis: 8)
    # three sends of 2,048 tokens of 4,096 numbers
    sends = 3 * (2 * 2048 * 4096 / 450e9 + LAUNCH / 1e6)
    kernels = sum(stages * pass_s(cost)[0] for stages, cost in zip((1, 2, 1), costs, strict=True))
    assert found / 1e6 == pytest.approx(kernels + sends)


@pytest.fixture(scope="module")
def every_plan():
    """Plans of 16 ranks in nodes of 4, and the costs of their ranks."""
    ranks, found = Ranks(CASE.ledger), []
    divided = [parse(text) for text in ("dp=16,fsdp:keep,mb=2", "dp=16,fsdp,hsdp=4,mb=2", "dp=16,zero=2,mb=2")]
    for plan in (*plans(16, 32, 4, False), *divided):
        with suppress(PlanError):
            found.append((plan, ranks.costs(plan)))
    return found


@pytest.fixture(scope="module")
def passes(every_plan):
    """Seconds of a forward and backward pass by ledger, which plans of equal degrees share, and by recomputation."""
    found = {}
    for plan, costs in every_plan:
        for cost in costs:
            key = id(cost.ledger), plan.recompute
            if key not in found:
                found[key] = sum(pass_s(cost))
    return found


def sending_s(cost, cluster):
    """Seconds that the busiest link sends in a step; those of all that is sent, by microbatches and once a step."""
    links, sent = Counter(), Counter()
    for one in cost.transfers:
        is_once, ranks = one.phase == "sync", span(one.axis, cost.plan)
        times = 1 if is_once else cost.plan.mb
        seconds = times * 2 * one.sent / cluster.bytes_per_s(ranks)
        links[ranks <= cluster.node] += seconds
        sent[is_once] += seconds + times * one.times * LAUNCH / 1e6
    return max(links.values(), default=0.0), sent[False], sent[True]


NODES = [Cluster(H100, within, between, node=4) for within, between in (
    (450e9, 50e9), (450e9, 1e9), (450e9, 1e8), (31e9, 31e9), (1e9, 31e9), (1e8, 1e8),
)]  # fmt: skip


@pytest.mark.parametrize("cluster", NODES, ids=lambda one: f"{one.within_bytes_per_s:g}-{one.between_bytes_per_s:g}")
def test_step_is_bounded_by_kernels_and_links(cluster, every_plan, passes):
    """No kernel hides two things, and what is no kernel is waiting."""
    times = PlanTimes(cluster, RECIPE, is_causal)
    assert len(every_plan) > 150
    for plan, costs in every_plan:
        found = times.step(costs, [sent_by(cost) for cost in costs], partial(span, plan=plan))
        computed = [plan.mb * passes[id(cost.ledger), plan.recompute] for cost in costs]
        updates = [update_s(cost) for cost in costs]
        links, often, once = zip(*(sending_s(cost, cluster) for cost in costs), strict=True)
        kernels = found.expected_s - found.collectives_s - found.stages_s
        longest = max(map(sum, zip(computed, updates, strict=True)))
        most = max(computed) + max(updates)
        rounding = 1e-12 * found.expected_s
        assert min(found.collectives_s, found.stages_s) >= 0
        assert found.expected_s >= max(longest, *links) - rounding, plan
        assert found.expected_s - found.stages_s <= most + max(often) + max(once) + rounding, plan
        assert min(computed) + min(updates) - rounding <= kernels <= most + rounding, plan
        if len(costs) == 1:
            assert kernels == pytest.approx(longest, abs=rounding), plan


@pytest.mark.parametrize("faster", ["within_bytes_per_s", "between_bytes_per_s"])
def test_no_pass_is_slower_on_a_faster_link(faster, every_plan):
    rates = (1e8, 1e9, 30e9, 31e9, 32e9, 1e12)
    clusters = [replace(Cluster(H100, 31e9, 31e9, node=4), **{faster: rate}) for rate in rates]
    every = [PlanTimes(cluster, RECIPE, is_causal) for cluster in clusters]
    for plan, costs in every_plan:
        sent = [sent_by(cost) for cost in costs]
        steps = [times.step(costs, sent, partial(span, plan=plan)).expected_s for times in every]
        passes = [times.forward_us(costs, partial(span, plan=plan))[1] for times in every]
        for found in (steps, passes):
            assert all(slower >= quicker for slower, quicker in pairwise(found)), plan
