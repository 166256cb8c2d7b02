"""A module that torch divides over ranks, counted on a fake process group, against the closed form of a rank."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.experimental._context_parallel import _attention as context_parallel

import headcount as hc
from headcount.bench.case import ledger_of
from headcount.bench.isolated.count_rank import saved_bytes
from headcount.formulas import moe_ffn
from headcount.formulas.plan import parse
from headcount.formulas.rank import rank_costs
from headcount.models import sharded
from headcount.models.build import build, make_module
from headcount.models.configs.base import ConfigError
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.configs.registry import ATTENTIONS

WORLD = 16
B, T = 3, 56
LAYERS = {
    "mha": ATTENTIONS["mha"](d_model=88, num_heads=8, head_dim=10, bias=False),
    "gqa": ATTENTIONS["mha"](d_model=88, num_heads=24, num_kv_heads=8, head_dim=10, bias=False),
    "moh": ATTENTIONS["moh"](d_model=88, num_heads=8, head_dim=10, num_shared_heads=3, top_k=2, bias=False),
    "moh_by_norms": ATTENTIONS["moh"](
        d_model=88,
        num_heads=16,
        num_kv_heads=8,
        head_dim=10,
        num_shared_heads=3,
        top_k=2,
        bias=False,
        router="query_norm",
    ),
    "moa": ATTENTIONS["moa"](d_model=24, num_experts=32, top_k=8, head_dim=5),
    "mla": ATTENTIONS["mla"](
        d_model=88, num_heads=8, head_dim=10, rotary_dim=6, value_dim=7, kv_rank=13, query_rank=11
    ),
    "mla-ideal": ATTENTIONS["mla"](d_model=88, num_heads=8, head_dim=10, kv_rank=13, form="ideal"),
    "switchhead": ATTENTIONS["switchhead"](d_model=88, num_heads=8, head_dim=5, num_experts=3, top_k=2),
}
LLAMA = hc.preset(
    "llama3-8b", {"num_layers": 2, "d_model": 32, "d_ff": 48, "vocab_size": 80, "num_heads": 8, "num_kv_heads": 8}
)
GLOO = Path(__file__).with_name("ranks_gloo.py")


@pytest.fixture(scope="module", autouse=True)
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    yield
    dist.destroy_process_group()


def mesh_of(**degrees):
    """Return a mesh with these dimensions, and one more for the other ranks."""
    sizes = (WORLD // int(torch.tensor([*degrees.values()]).prod()), *degrees.values())
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("rest", *degrees))
    for part in (mesh, *(mesh[name] for name in degrees)):
        # under FakeTensorMode a mesh would make its coordinates of fake tensors
        part.get_coordinate()
    return mesh


def totals(transfers):
    """Return the elements sent by axis, and forward or backward; sums of gradients belong to backward."""
    out = Counter()
    for one in transfers:
        out[one.axis, one.phase == "forward"] += one.sent
    return {key: number for key, number in out.items() if number}


def check(module, inputs, form, text, synced=False):
    """Compare the counts of a forward pass, and of one with its backward pass, with the closed form.

    Gradients are summed over ranks, ``synced``, only where FSDP wraps the module.
    """
    (cost,) = rank_costs(form, parse(text))
    with implicit_replication():
        step = hc.count(module, *inputs, backward=True)
        forward = hc.count(module, *inputs)
    assert (forward.macs, step.macs) == (cost.macs, cost.step_macs)
    assert totals(step.collectives) == totals(one for one in cost.transfers if synced or one.phase != "sync")
    assert totals(forward.collectives) == totals(one for one in cost.transfers if one.phase == "forward")


def layer_form(config, length=T, batch=B):
    return ledger_of(config, {"batch_size": batch, "tgt_len": length, "src_len": length})


def tokens(config, length=T, batch=B, device="meta"):
    return torch.zeros(batch, length, config.d_model, device=device, requires_grad=True)


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("name", ["mha", "gqa", "moh", "moh_by_norms", "mla"])
def test_heads(name, t):
    layer = build(LAYERS[name], device="meta")
    sharded.divide_heads(layer, mesh_of(tp=t)["tp"])
    check(layer, [tokens(LAYERS[name])], layer_form(LAYERS[name]), f"tp={t}")


@pytest.mark.parametrize("name", ["moh", "moh_by_norms"])
def test_gates_of_long_sequences_stay_whole(name):
    # DTensor would divide the tokens of a large gradient of gates, and move that of all queries twice
    layer, form = build(LAYERS[name], device="meta"), layer_form(LAYERS[name], 4096, 1)
    sharded.divide_heads(layer, mesh_of(tp=8)["tp"])
    check(layer, [tokens(LAYERS[name], 4096, 1)], form, "tp=8")


@pytest.mark.parametrize("c", [2, 4, 8])
@pytest.mark.parametrize("name", LAYERS)
def test_context(name, c):
    layer = build(LAYERS[name], device="meta")
    sharded.gather_keys(layer, mesh_of(cp=c)["cp"])
    check(layer, [tokens(LAYERS[name], T // c)], layer_form(LAYERS[name]), f"cp={c}")


@pytest.mark.parametrize("c", [2, 4, 8])
@pytest.mark.parametrize("name", ["mha", "gqa", "moh", "moa", "switchhead"])
def test_ring(name, c):
    layer = build(LAYERS[name], device="meta")
    sharded.rotate_keys(layer, mesh_of(cp=c)["cp"])
    check(layer, [tokens(LAYERS[name], T // c)], layer_form(LAYERS[name]), f"cp={c}:ring")


class TorchRing(nn.Module):
    """torch's own ring attention, causal, each rank with a block of the head and one of the tail."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh

    def forward(self, *parts):
        q, k, v = (DTensor.from_local(part, self.mesh, [Shard(2)]) for part in parts)
        context_parallel._enable_context_parallel_dispatcher_impl(seq_dim=2, mesh=self.mesh)
        try:
            return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, True)[0].to_local()
        finally:
            context_parallel._disable_context_parallel_dispatcher_impl()


@pytest.mark.parametrize("c", [2, 4, 8])
def test_torch_computes_a_causal_ring_by_blocks(c):
    own = torch.zeros(3, 5, 14, 8, dtype=torch.bfloat16, device="meta")
    found = hc.count(TorchRing(mesh_of(cp=c)["cp"]), own, own, own)
    # scores and values of the whole square would be 2 T / c T of each head
    assert found.macs * 2 * c == (c + 1) * 2 * 3 * 5 * 14 * (14 * c) * 8
    assert sum(one.sent for one in found.collectives) == (c - 1) * 2 * own.numel()


@pytest.mark.parametrize(
    ("name", "ring"), [("mla", False), *((name, ring) for name in ("mha", "gqa", "moh") for ring in (False, True))]
)
def test_heads_and_context(name, ring):
    mesh = mesh_of(cp=2, tp=2)
    layer = build(LAYERS[name], device="meta")
    sharded.divide_heads(layer, mesh["tp"])
    exchange = sharded.rotate_keys if ring else sharded.gather_keys
    exchange(layer, mesh["cp"])
    text = "tp=2,cp=2:ring" if ring else "tp=2,cp=2"
    check(layer, [tokens(LAYERS[name], T // 2)], layer_form(LAYERS[name]), text)


@pytest.mark.parametrize("name", ["moh", "mla", "switchhead"])
def test_context_and_weights(name):
    mesh, fake = mesh_of(replica=2, cp=2), FakeTensorMode(allow_non_fake_inputs=True)
    # weights are divided over all ranks that see other tokens
    both = mesh["replica", "cp"]._flatten("dp")
    both.get_coordinate()
    with fake:
        layer, x = make_module(LAYERS[name]), tokens(LAYERS[name], T // 2, device="cpu")
    sharded.gather_keys(layer, mesh["cp"])
    fully_shard(layer, mesh=both)
    with fake:
        check(layer, [x], layer_form(LAYERS[name]), "dp=2,cp=2,fsdp", synced=True)


class Experts(nn.Module):
    """A layer whose experts are on several ranks, with routing that gives each expert as many rows."""

    def __init__(self, config, run, mesh, length):
        super().__init__()
        self.layer, self.run, self.mesh = build(config), run, mesh
        sharded.own_experts(self.layer, mesh)
        slots = torch.arange(2 * length * config.top_k) % config.num_experts
        self.chosen = slots.view(2, length, config.top_k)

    def forward(self, x):
        return self.run(self.layer, x, self.mesh, self.chosen)


@pytest.mark.parametrize("e", [2, 4, 8])
@pytest.mark.parametrize(("E", "K"), [(8, 8), (32, 8), (32, 16), (64, 2)])
@pytest.mark.parametrize("shared", [True, False])
def test_experts(shared, E, K, e):
    config = ATTENTIONS["moa"](d_model=24, num_experts=E, top_k=K, head_dim=5)
    length = E * e
    own = length if shared else E
    run, text = (
        (sharded.shared_experts, f"tp={e},ep={e}:replicated") if shared else (sharded.sent_experts, f"cp={e},ep={e}")
    )
    mesh = mesh_of(**{"tp" if shared else "ep": e})["tp" if shared else "ep"]
    form = ledger_of(config, {"batch_size": 2, "tgt_len": length, "src_len": length})
    (cost,) = rank_costs(form, parse(text))
    step = hc.count(Experts(config, run, mesh, own), tokens(config, own, 2, "cpu"), backward=True)
    assert step.macs == cost.step_macs
    # keys and values are gathered over the experts' ranks, which here are those of cp
    sums = [Counter(), Counter()]
    for transfers, out in zip((step.collectives, cost.transfers), sums, strict=True):
        for one in transfers:
            out[one.phase] += 0 if one.phase == "sync" else one.sent
    assert +sums[0] == +sums[1]


@pytest.mark.parametrize("e", [2, 4, 8])
@pytest.mark.parametrize(("shared", "gated"), [(True, True), (True, False), (False, True), (False, False)])
def test_experts_of_a_feed_forward(shared, gated, e):
    config = MixtureFeedForwardConfig(d_model=24, d_ff=10, num_experts=16, top_k=8, gated=gated)
    run, text = (
        (sharded.shared_experts, f"tp={e},ep={e}:replicated") if shared else (sharded.sent_experts, f"dp={e},ep={e}")
    )
    axis = "tp" if shared else "ep"
    form = moe_ffn.layer("feed_forward", B=2, T=16, d_m=24, F=10, E=16, K=8, gated=gated)
    (cost,) = rank_costs(form, parse(text))
    module = Experts(config, run, mesh_of(**{axis: e})[axis], 16)
    step = hc.count(module, tokens(config, 16, 2, "cpu"), backward=True)
    assert step.macs == cost.step_macs
    assert totals(step.collectives) == totals(one for one in cost.transfers if one.phase != "sync")


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("t", [2, 4, 8])
def test_llama_by_tensor_and_sequence(sequence, t):
    model = build(LLAMA, device="meta")
    sharded.divide_model(model, mesh_of(tp=t)["tp"], sequence)
    inputs = torch.zeros(2, 24, dtype=torch.long, device="meta")
    form = ledger_of(LLAMA, {"batch_size": 2, "seq_len": 24})
    (cost,) = rank_costs(form, parse(f"tp={t},sp" if sequence else f"tp={t}"))
    with implicit_replication():
        step = hc.count(model, inputs, backward=True)
    assert step.macs == cost.step_macs
    # the norms' gradients are summed only where something reads them
    moved = [one for one in cost.transfers if one.phase != "sync"]
    assert totals(step.collectives) == totals(moved)
    assert {one.kind for one in step.collectives} == {one.kind for one in moved}


# the logits of a divided vocabulary are a view, which nothing writes to
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
@pytest.mark.parametrize(("t", "d"), [(1, 2), (1, 4), (1, 8), (2, 8), (4, 4), (2, 2)])
def test_llama_by_weights(t, d):
    mesh, fake = mesh_of(dp=d, tp=t), FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        model, inputs = make_module(LLAMA), torch.zeros(2, 24, dtype=torch.long)
    if t > 1:
        sharded.divide_model(model, mesh["tp"], sequence=True)
    sharded.divide_weights(model, mesh["dp"])
    (cost,) = rank_costs(
        ledger_of(LLAMA, {"batch_size": 2, "seq_len": 24}), parse(f"dp={d},fsdp" + (f",tp={t},sp" if t > 1 else ""))
    )
    with implicit_replication(), fake:
        step = hc.count(model, inputs, backward=True)
    assert step.macs == cost.step_macs
    assert totals(step.collectives) == totals(cost.transfers)
    assert sum(p.to_local().numel() for p in model.parameters()) == cost.held["weights"]


@pytest.mark.parametrize(
    ("name", "why"), [("moa", "$"), ("mla-ideal", "$"), ("switchhead", ": ColwiseParallel currently only support")]
)
def test_heads_that_torch_does_not_divide(name, why):
    with pytest.raises(ConfigError, match=f"the heads of {LAYERS[name].variant} cannot be divided{why}"):
        sharded.divide_heads(build(LAYERS[name], device="meta"), mesh_of(tp=2)["tp"])


def test_real_processes_compute_what_the_whole_module_computes():
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = subprocess.run([*command, str(GLOO)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["heads", "model", "keys", "ring", "heads_and_keys", "shared", "sent"]


def test_saved_activations_of_a_rank():
    """Of two products around a ReLU, its result is saved once, half of 26 columns in float32; weights are not."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    block = nn.Sequential(nn.Linear(11, 26, bias=False), nn.ReLU(), nn.Linear(26, 7, bias=False)).to("meta")
    parallelize_module(block, mesh_of(tp=2)["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert saved_bytes(block, (torch.zeros(5, 11, device="meta"),), {}) == 4 * 5 * 13
