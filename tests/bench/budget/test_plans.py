"""``headcount budget --ranks``: the listed parallel plans, their Pareto front, and costs against hand formulas."""

import json
from dataclasses import replace
from itertools import product

import pytest

from headcount.bench.budget import fit, plans
from headcount.bench.budget.__main__ import main
from headcount.bench.card_times import TRAINING
from headcount.bench.case import Case
from headcount.bench.commands import count
from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.__main__ import main as latency
from headcount.bench.macs import ranks
from headcount.bench.performance.plan_time import ASSUMED, BETWEEN, cluster_of, in_nodes, sent_by, span
from headcount.formulas.plan import parse
from headcount.formulas.rank import Ranks, rank_costs

LLAMA = {"num_layers": 6, "d_model": 16, "d_ff": 24, "vocab_size": 40, "num_heads": 8, "num_kv_heads": 4}


NODES_OF_4 = cluster_of(in_nodes(HARDWARE["h100"], node=4))
SEARCH = ["llama3-8b", *(f"--set={name}={size}" for name, size in LLAMA.items()), "--seq-len", "56"]


@pytest.fixture(scope="module")
def case():
    return Case.of("llama3-8b", LLAMA, {"seq_len": 56})


@pytest.mark.parametrize("ranks, widest", [(1, 1), (6, 3), (16, 4)])
def test_plans_use_all_ranks_and_can_be_parsed(ranks, widest):
    found = list(plans.plans(ranks, batch=48, node=4, experts=True))
    assert found and len(set(found)) == len(found)
    assert max(plan.tp for plan in found) == widest
    for plan in found:
        assert plan.ranks == ranks and plan.tp <= 4 and plan.dp * plan.mb == 48
        assert parse(str(plan)) == plan


def test_listed_plans_are_the_front(case):
    within, _ = plans.search(case, 8, 8, 10**9, NODES_OF_4)
    (table,) = plans.result(case, 8, 8, 10**9, 0, 0, NODES_OF_4).tables
    costs = [[one[name] for name in plans.OBJECTIVES] for one in within.values()]
    front = [
        one
        for one in costs
        if not any(all(a <= b for a, b in zip(other, one, strict=True)) and other != one for other in costs)
    ]
    assert sorted([getattr(row, name) for name in plans.OBJECTIVES] for row in table.rows) == sorted(front)


def test_plan_costs_match_its_rank(case):
    plan = parse("tp=4,sp,dp=2,mb=12")
    costs = Ranks(case.ledger).costs(plan)
    found = plans.plan_costs(costs, [sent_by(cost) for cost in costs], plan, node=4)
    (cost,) = rank_costs(case.ledger, parse("tp=4,sp,dp=2"))
    moved = {axis: [one for one in cost.transfers if one.axis == axis] for axis in ("tp", "dp")}
    once, often = (2 * sum(one.sent for one in moved["tp"] if (one.phase == "sync") == own) for own in (True, False))
    assert found["within_bytes"] == 12 * often + once
    assert found["between_bytes"] == 2 * sum(one.sent for one in moved["dp"])
    assert found["macs"] == 12 * cost.step_macs


@pytest.mark.parametrize(
    ("preset", "more"), [("llama3-8b", {}), ("mistral-7b", {"ffn_num_experts": 6, "ffn_top_k": 2})]
)
def test_listed_plans_cost_what_count_prints(preset, more):
    """On 12 ranks most degrees divide few weights."""
    fields = {"num_layers": 6, "d_model": 9, "d_ff": 36, "vocab_size": 84, "num_heads": 12, "num_kv_heads": 3}
    case = Case.of(preset, fields | {"head_dim": 2} | more, {"seq_len": 24})
    within, _ = plans.search(case, 12, 24, 10**9, NODES_OF_4)
    assert len(within) > 50
    for plan, costs in within.items():
        table, *_ = ranks.tables(replace(case, plan=parse(str(plan))))
        rows = table.rows
        assert costs["macs"] == max(row.step_macs for row in rows)
        gathered = [2 * cost.gathered_params() * (plan.zero == 3) for cost in rank_costs(case.ledger, plan)]
        parts = zip(rows, gathered, strict=True)
        assert costs["held_bytes"] == max(row.state_bytes + row.saved_bytes + more for row, more in parts)
        if len(rows) == 1:
            sent = rows[0].step_sent_bytes + rows[0].sync_bytes
            assert costs["within_bytes"] + costs["between_bytes"] == sent
        assert {type(costs[name]) for name in plans.OBJECTIVES[1:]} == {int}


@pytest.mark.parametrize(("recompute", "wide"), [("none", None), ("full", 16)])
def test_activations_of_a_dense_decoder(case, recompute, wide):
    (cost,) = rank_costs(case.ledger, parse(f"dp=1,recompute={recompute}"))
    T, d, N, F, V, g = 56, 16, 6, 24, 40, 4 * 2
    # two norms, q, k, v and rotated q, k, the heads' values, output, two sums; gate, up, activation, product, down
    layer = T * (2 * d + 2 * (d + g) + g + d + d + 2 * d + 4 * F + d)
    outside = T * (d + d + V)
    assert cost.activation_elements() == outside + (N * layer if wide is None else N * T * wide + layer)


def test_impossible_plan_raises(case):
    with pytest.raises(UsageError, match=r"no plan holds at most 10 bytes; .* holds [0-9,]+$"):
        plans.search(case, 2, 2, 10, NODES_OF_4)
    with pytest.raises(UsageError, match="no plan of 11 ranks fits the sizes"):
        plans.search(case, 11, 7, 10**9, NODES_OF_4)


def test_rows_are_ordered_by_expected_time(case):
    (table,) = plans.result(case, 8, 8, 10**9, 0, 0, NODES_OF_4).tables
    times = [row.step_s for row in table.rows]
    assert times == sorted(times)
    within, _ = plans.search(case, 8, 8, 10**9, NODES_OF_4)
    assert times[0] == min(one["step_s"] for one in within.values())
    assert all(row.least_s < row.step_s for row in table.rows)


def test_plan_is_one_word_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = ["--ranks", "16", "--global-batch", "8", "--bytes", "1M", "--limit", "0", "--min-distance", "0"]
    assert main([*SEARCH, *options]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "=" in line.partition(" ")[0]]
    assert len(rows) > 5
    for line in rows:
        assert parse(line.split()[0]).ranks == 16 and len(line) <= 80


def test_card_without_known_links_is_refused(case):
    with pytest.raises(UsageError, match="links of Google TPU v4 in a node are not known; choose from H200 SXM"):
        cluster_of(HARDWARE["tpu-v4"])


def test_card_in_a_slot_sends_no_more_than_the_slot():
    slot, switch = (cluster_of(HARDWARE[name]) for name in ("l40s", "h100"))
    assert slot.between_bytes_per_s == slot.within_bytes_per_s == HARDWARE["l40s"].link_bytes_per_s
    assert switch.between_bytes_per_s == BETWEEN < switch.within_bytes_per_s
    assert cluster_of(in_nodes(HARDWARE["l40s"], between=1e11)).between_bytes_per_s == 1e11


def test_span_of_each_axis():
    for tp, cp in product((1, 2, 4), (1, 2)):
        plan = parse(f"dp=2,tp={tp},cp={cp}")
        spans = [span(axis, plan) for axis in ("tp", "cp", "dp", "pp")]
        assert spans == [tp, tp * cp, 2 * tp * cp, 2 * tp * cp]


def tables_of(command, words, capsys):
    """Return the tables of a command by name."""
    assert command([*words, "--format", "json"]) == 0
    return {table["name"]: table["rows"] for table in json.loads(capsys.readouterr().out)["tables"]}


@pytest.mark.parametrize("more", [[], ["--batch-size", "2"]])
def test_pasted_row_costs_the_same_in_other_commands(more, capsys):
    words = [*SEARCH, *more, "--on", "h100-sxm"]
    options = ["--ranks", "8", "--global-batch", "16", "--bytes", "1M", "--limit", "0"]
    rows = tables_of(main, [*words, *options], capsys)["plans"]
    kinds = ("pp=", "fsdp", "recompute=full", "mb=", "cp=", "tp=")
    chosen = [next(row for row in rows if kind in row["plan"]) for kind in kinds]
    for row in chosen:
        plan = [*words, "--plan", row["plan"]]
        fitted = tables_of(fit.main, [*plan, "--train"], capsys)
        held = {part["part"]: part["bytes"] for part in fitted["fit"]}
        assert held["total"] == row["held_bytes"], row["plan"]
        counted = tables_of(count.main, [*plan, "--counter", "closed-form"], capsys)
        by_rank = counted["llama3-8b-ranks"]
        assert max(rank["step_macs"] for rank in by_rank) == row["macs"]
        if len(by_rank) == 1:
            sent = by_rank[0]["step_sent_bytes"] + by_rank[0]["sync_bytes"]
            assert sent == row["within_bytes"] + row["between_bytes"]
        target = ",".join([SEARCH[0], *(word.removeprefix("--set=") for word in SEARCH if "=" in word)])
        (*_, estimated) = tables_of(latency, ["--estimate", target, *words[-4 - len(more) :], *plan[-2:]], capsys)[
            "time"
        ]
        for times in (fitted["time"], counted["time"], [estimated]):
            (step,) = (one for one in times if one["what"] == TRAINING)
            assert step["expected_ms"] == pytest.approx(1000 * row["step_s"], rel=1e-12)
            assert step["mfu"] == pytest.approx(row["mfu"], rel=1e-12) and step["tokens"] == 16 * 56


def test_pasted_row_has_the_links_of_its_search(capsys):
    words = [*SEARCH, "--on", "h100-sxm", "--between-nodes", "3G", "--ranks-per-node", "2"]
    options = ["--ranks", "8", "--global-batch", "16", "--bytes", "1M", "--limit", "0"]
    rows = tables_of(main, [*words, *options], capsys)["plans"]
    waiting = max(rows, key=lambda row: row["collectives_share"])
    assert waiting["between_bytes"]
    for row in (rows[0], waiting):
        (step,) = tables_of(fit.main, [*words, "--train", "--plan", row["plan"]], capsys)["time"]
        assert step["expected_ms"] == pytest.approx(1000 * row["step_s"], rel=1e-12), row["plan"]
        assert step["mfu"] == pytest.approx(row["mfu"], rel=1e-12)
    assert fit.main([*SEARCH, "--on", "h100-sxm", "--between-nodes", "3G"]) == 2
    assert "--plan or --ranks" in capsys.readouterr().err


@pytest.mark.parametrize("rate", [1e5, 1e7, 1e9, 30e9])
def test_rows_are_no_shorter_than_their_bytes_take(case, rate):
    cluster = replace(NODES_OF_4, within_bytes_per_s=2 * rate, between_bytes_per_s=rate)
    within, _ = plans.search(case, 16, 16, 10**9, cluster)
    for plan, costs in within.items():
        sending = max(costs["between_bytes"] / rate, costs["within_bytes"] / (2 * rate))
        assert costs["step_s"] >= sending * (1 - 1e-12), plan
        waiting = costs["collectives_share"] + costs["stages_share"]
        # a kernel is never shorter than its least time
        assert (1 - waiting / 100) * costs["step_s"] >= costs["least_s"] * (1 - 1e-9), plan
        if rate == 1e5 and plan.dp == 16:
            assert waiting > 99, plan


def test_times_state_what_runs_during_what(capsys):
    options = ["--ranks", "8", "--global-batch", "16", "--bytes", "1M"]
    words = [*SEARCH, "--on", "h100-sxm"]
    target = ",".join([SEARCH[0], *(word.removeprefix("--set=") for word in SEARCH if "=" in word)])
    for command, line in (
        (main, [*words, *options]),
        (fit.main, [*words, "--train", "--plan", "dp=8"]),
        (latency, ["--estimate", target, *words[-4:], "--plan", "dp=8,fsdp"]),
    ):
        assert command(line) == 0
        assert ASSUMED in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("line", "named"), [
    ("", "a preset or config.json and --global-batch N and --bytes 80G"), ("config.json", "--bytes"),
    ("llama3-8b --global-batch 3 --bytes 1G --batch-size 2", "microbatches of 2"),
    ("llama3-8b --global-batch 8 --bytes 1G --macs 1G", "--macs"),
    ("llama3-8b --global-batch 8 --bytes 1G --match-model llama3-8b", "--match-model"),
])  # fmt: skip
def test_search_of_plans_names_what_it_lacks(line, named, capsys):
    assert main([*line.split(), "--ranks", "8"]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(("line", "named"), [
    ("config.json", "--ranks N"), ("config.json --macs 1G", "--ranks N"), ("llama3-8b --bytes 1G", "--ranks N"),
    ("--macs 1G --global-batch 8", "--global-batch"),
])  # fmt: skip
def test_search_of_sizes_names_the_search_of_plans(line, named, capsys):
    assert main(line.split()) == 2
    assert named in capsys.readouterr().err


def test_named_card_has_the_bytes_of_a_rank(capsys):
    words = ["llama3-8b", "--ranks", "8", "--global-batch", "16", "--on", "H100 SXM", "--format", "json"]
    tables = []
    for more in ([], ["--bytes", "85520809984"]):
        assert main([*words, *more]) == 0
        tables.append(json.loads(capsys.readouterr().out)["tables"])
    assert tables[0] == tables[1]
    assert main(words[:5]) == 2 and "--bytes 80G" in capsys.readouterr().err
