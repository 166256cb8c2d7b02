"""``headcount count --plan``: the tables of a rank, and wrong plans."""

import csv
import io

LLAMA = ["count", "llama3-8b", "--seq-len", "8192", "--counter", "closed-form"]


def test_a_row_has_the_counted_figures_of_a_rank(command):
    # counted from DTensors on a fake process group, torch 2.13
    (row,) = csv.DictReader(io.StringIO(command(*LLAMA, "--plan", "tp=8,sp", "--format", "csv", "--brief")[1]))
    wanted = {
        "ranks": 8, "rank_macs": 9_883_793_489_920, "step_macs": 29_651_380_469_760, "rank_params": 1_004_015_616,
        "sent_bytes": 7_633_633_280, "step_sent_bytes": 15_267_266_560, "sync_bytes": 931_840,
        # 2 x 8,192 tokens x one key/value head of 128 x 32 layers, 2 bytes each
        "kv_bytes": 2 * 2 * 8192 * 128 * 32,
    }  # fmt: skip
    assert {name: int(row[name]) for name in wanted} == wanted


def test_degree_that_divides_few_weights(command, tables):
    found = tables("count", "llama3-8b", "--seq-len", "96", "--plan", "dp=3", "--counter", "closed-form")
    # a sum over 3 ranks of each weight's gradient, 4 / 3 of its elements leave a rank, 2 bytes each
    d, F, g, V = 4096, 14336, 1024, 128256
    layer = [d, d, d * d, d * d, d * g, d * g, d * F, d * F, d * F]
    elements = sum(-(-4 * size // 3) for size in [*(32 * layer), d, d * V, d * V])
    (row,) = found["llama3-8b-ranks"]
    assert row["sync_bytes"] == 2 * elements
    assert sum(one["bytes"] for one in found["llama3-8b-collectives"]) == row["sync_bytes"]
    code, out, _ = command("count", "llama3-8b", "--seq-len", "96", "--plan", "dp=3", "--counter", "closed-form")
    assert code == 0 and out


def test_collectives_add_up_to_the_row(tables):
    found = tables(*LLAMA, "--plan", "tp=8,sp,dp=16,fsdp", "--reduce-bytes", "4")
    (row,), moved = found["llama3-8b-ranks"], found["llama3-8b-collectives"]
    sums = {
        phase: sum(one["bytes"] for one in moved if one["phase"] == phase) for phase in ("forward", "backward", "sync")
    }
    assert row["sent_bytes"] == sums["forward"]
    assert row["step_sent_bytes"] == sums["forward"] + sums["backward"]
    assert row["sync_bytes"] == sums["sync"]
    # gradients of all weights, 4 bytes each, 15 of 16 parts leave the rank; and the norms' over tp
    norms = 65 * 4096
    assert sums["sync"] == 4 * (row["rank_params"] * 15 // 16 + norms * 2 * 7 // 8)


def test_options_that_a_plan_does_not_have_are_refused(command):
    for option in (["--vary", "T=1k,2k"], ["--cite"]):
        code, out, err = command(*LLAMA, "--plan", "tp=8", *option)
        assert (code, out) == (2, "") and f"{option[0]} does not go with --plan" in err
