"""The expected time of a training step under a plan, by hand arithmetic on what ranks compute and send."""

from dataclasses import replace

import pytest

from headcount.bench.accounts import RECIPES
from headcount.bench.case import Case
from headcount.bench.hardware import HARDWARE
from headcount.bench.performance import model
from headcount.bench.performance.closed_form import BFLOAT16, ClosedForm, update
from headcount.bench.performance.plan_time import Cluster, PlanTimes, sent_by
from headcount.formulas.plan import parse
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
