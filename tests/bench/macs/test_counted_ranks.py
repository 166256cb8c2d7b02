"""``headcount count``, ``compare`` and ``lock`` of one rank of a preset, and of a module that the user divides."""

import json
from dataclasses import replace

import pytest

from headcount.bench.case import Case
from headcount.bench.counting.count import count_ranks
from headcount.bench.lock.__main__ import main as lock
from headcount.bench.macs import ranks
from headcount.bench.macs.ranks import verdict
from headcount.formulas.ledger import Ledger
from headcount.formulas.plan import parse

FIELDS = {"num_layers": 2, "d_model": 28, "d_ff": 26, "vocab_size": 34, "num_heads": 2, "num_kv_heads": 2}
LENGTHS = {"batch_size": 3, "seq_len": 14}
PRESET = ["llama3-8b", *(f"--set={name}={size}" for name, size in FIELDS.items())]
PRESET += ["--batch-size", "3", "--seq-len", "14"]

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(11, 26, bias=False), nn.Linear(26, 11, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

def make():
    return nn.Sequential(Block(), Block()), (torch.zeros(5, 7, 11),)
"""
PLAN = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def apply(module, mesh=None):
    mesh = mesh or init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("model",))
    for block in module:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return module

def both(module):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    apply(module, mesh["model"])
    return fully_shard(module, mesh=mesh["data"])

def none(module):
    pass
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "plan.py").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "size"), [("moh-dit-s2-75", "num_classes=10"), ("transnext-micro", "depths=1,1,1,1")])
def test_training_step_of_images_is_counted(name, size, tables):
    """The closed form of a step has no gradient of the images."""
    words = [name, "--set", size, "--plan", "dp=3", "--backward"]
    (row,) = tables("count", *words)[f"{name}-ranks"]
    assert row["verdict"] == "equal"


@pytest.mark.parametrize("plan", ["tp=2", "pp=1+1,tp=2,sp,dp=2,fsdp:keep"])
def test_each_class_of_ranks_equals_its_closed_form(plan, tables, monkeypatch):
    found = {}
    monkeypatch.setattr(ranks, "count_ranks", lambda *args, **how: found.update(count_ranks(*args, **how)) or found)
    rows = tables("count", *PRESET, "--plan", plan, "--backward")["llama3-8b-ranks"]
    assert {row["verdict"] for row in rows} == {"equal"}
    assert {row["saved_by"] for row in rows} == {"count"}
    if plan == "tp=2":
        # 42 tokens; of 2 layers four projections, two products over 14 keys and three matrices of 13 of 26; logits
        B, T, d, F, V = 3, 14, 28, 13, 17
        assert rows[0]["rank_macs"] == B * T * (2 * (4 * d * 14 + 2 * T * 14 + 3 * d * F) + d * V)
    for cost in Case.of("llama3-8b", FIELDS, LENGTHS, plan=parse(plan)).ranks:
        check_that_verdict_names_what_differs(cost, found[cost.stage])


def check_that_verdict_names_what_differs(cost, count):
    """Leave a product out of the closed form, and each transfer out of the count and of the closed form."""
    without = replace(cost, ledger=Ledger(tuple(x for x in cost.ledger if not x.path.endswith("up_proj"))))
    assert verdict(without, count, training=True).startswith("layers.*.feed_forward.up_proj: ")
    for one in count.collectives:
        without = replace(count, collectives=tuple(other for other in count.collectives if other is not one))
        assert verdict(cost, without, training=True).startswith(f"{one.kind} over {one.axis}, ")
    for one in cost.transfers:
        without = replace(cost, transfers=tuple(other for other in cost.transfers if other is not one))
        # sends between stages, and sums of gradients without FSDP, are closed forms alone
        alone = one.axis == "pp" or one.phase == "sync" and cost.plan.zero != 3
        wanted = "equal" if alone else f"{one.kind} over {one.axis}, "
        assert verdict(without, count, training=True).startswith(wanted)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([*PRESET, "--plan", "cp=2"], "cp=2 has a closed form only: causal masks"),
        ([*PRESET, "--plan", "tp=2,recompute=full"], "recompute=full has a closed form only: activation"),
        (["transformer-base", "--plan", "tp=2"], "EncoderDecoder under tp=2 has a closed form only: LLaMA models"),
        (
            ["palm-8b", "--set", "num_layers=1", "--plan", "tp=2"],
            "feed-forward blocks of decoder models are not divided",
        ),
    ],
)
def test_ranks_that_are_not_counted_have_a_reason(words, reason, command):
    code, out, _ = command("count", *words)
    assert code == 0
    assert "not counted [1]" in out and "no rank is counted." in out and reason in " ".join(out.split())


def test_rank_of_a_module_that_the_user_divides(folder, tables):
    found = tables("count", "model.py:make", "--ranks", "2", "--plan", "plan.py:apply", "--backward")
    (model, *_), moved = found["modules"], found["module-collectives"]
    assert (model["macs"], model["params"]) == (2 * 3 * 2 * 35 * 11 * 13, 2 * 2 * 11 * 13)
    # half of a sum of 35 x 11 leaves a rank twice
    assert {(one["path"], one["kind"], one["axis"], one["phase"], one["times"], one["bytes"]) for one in moved} == {
        ("*.down", "all_reduce", "model", "forward", 2, 2 * 4 * 35 * 11),
        ("*.up", "all_reduce", "model", "backward", 2, 2 * 4 * 35 * 11),
    }


@pytest.mark.parametrize(("rank", "rows"), [(0, 7), (2, 6)])
def test_rank_of_fsdp_holds_its_rows(rank, rows, folder, tables):
    # 13 rows of up on two ranks are 7 and 6, 11 rows of down 6 and 5
    words = ["model.py:make", "--ranks", "4", "--rank", str(rank), "--plan", "plan.py:both"]
    assert tables("count", *words)["modules"][0]["params"] == 2 * (rows * 11 + (rows - 1) * 13)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--ranks", "2", "--plan", "plan.py:aply"], "plan.py has no function aply; it has "),
        (["--ranks", "2", "--plan", "plan.py:both"], "Mesh should not be bigger than default world size 2"),
        (["--ranks", "3", "--plan", "plan.py:apply"], "running a rank raised RuntimeError: a and b must have same"),
        (["--ranks", "2", "--plan", "plan.py:none"], "none must return the divided module, not a NoneType"),
        (["--ranks", "2", "--rank", "2", "--plan", "plan.py:apply"], "--rank 2: the ranks of --ranks 2 are 0 to 1"),
        (["--ranks", "0", "--plan", "plan.py:apply"], "--ranks must be at least 1, not 0"),
        (["--plan", "tp=2"], "a module is divided by --ranks N --plan FILE.py:FUNCTION"),
        (["--ranks", "2"], "a module is divided by --ranks N --plan FILE.py:FUNCTION"),
        (["--ranks", "2", "--plan", "plan.py:apply", "--counter", "torch"], "goes without --counter"),
    ],
)
def test_wrong_divisions(words, error, folder, command):
    code, out, err = command("count", "model.py:make", *words)
    assert code == 2 and error in err and err.count("\n") == 1 and not out


def test_compare_two_plans(tables):
    rows = tables("compare", *PRESET, "--plan", "tp=2", "--plan", "tp=2,sp")["compare-changes"]
    totals = {row["quantity"]: row["difference"] for row in rows if row["what"] == "total"}
    # the sums of the gradients of 5 norms are what sp sends more: an all-reduce is a reduce-scatter and an all-gather
    assert totals == {"bytes sent": -2 * 5 * 28, "MACs": 0}
    by_path = {(row["path"], row["kind"]): row["a"] for row in rows if row["path"]}
    assert by_path["embedding", "all_reduce tp forward"] == 2 * 3 * 14 * 28


def test_lock_holds_the_collectives_of_a_rank(folder, capsys):
    assert lock(["model.py:make", "--ranks", "2", "--plan", "plan.py:apply", "-o", "a.lock"]) == 0
    assert lock(["--check", "a.lock"]) == 0
    gathers = 'RowwiseParallel(), "": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate())'
    imports = "from torch.distributed.tensor import Replicate, Shard\n"
    imports += "from torch.distributed.tensor.parallel import PrepareModuleOutput\n"
    (folder / "plan.py").write_text(imports + PLAN.replace("RowwiseParallel()}", gathers + "}"))
    capsys.readouterr()
    assert lock(["--check", "a.lock", "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert {row["kind"] for row in rows if row["what"] == "added"} == {"all_gather model forward"}
