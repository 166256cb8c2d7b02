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


def test_compare_count_and_budget_send_equal_bytes(command, tables):
    model, plans = "llama2-7b", ["dp=128,zero=1,mb=8", "dp=128,fsdp,mb=8"]
    outside = 2 * 32000 * 4096 + 4096
    params = 32 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096) + outside
    # 127 of 128 parts leave a rank; with fsdp the forward and, of layers, the backward pass of each microbatch gather
    once, gathered = 2 * params * 127 // 128, 2 * (2 * params - outside) * 127 // 128
    wanted = [2 * once, 8 * gathered + once]

    words = ["compare", model, *(word for plan in plans for word in ("--plan", plan))]
    *_, total = [row for row in tables(*words)["compare-changes"] if row["quantity"] == "bytes sent"]
    assert [total["a"], total["b"]] == wanted
    assert command(*words, "--brief")[1] == f"A: as many MACs as B; {wanted[1] - wanted[0]:,} bytes sent less.\n"

    for plan, size in zip(plans, wanted, strict=True):
        (row,) = tables("count", model, "--plan", plan, "--counter", "closed-form")[f"{model}-ranks"]
        assert row["step_sent_bytes"] + row["sync_bytes"] == size
    words = [model, "--ranks", "128", "--global-batch", "1024", "--bytes", "200G", "--min-distance", "0"]
    sent = {row["plan"]: row["within_bytes"] + row["between_bytes"] for row in tables("budget", *words)["plans"]}
    assert any(plan in sent for plan in plans)
    assert all(sent[plan] == size for plan, size in zip(plans, wanted, strict=True) if plan in sent)


def test_compare_says_whose_microbatches_bytes_are(command):
    out = command("compare", "llama2-7b", "--plan", "dp=4,mb=8", "--plan", "dp=4")[1]
    assert "forward and backward of 8 microbatches in A and one microbatch in B" in " ".join(out.split())
