"""Modules that torch divides over ranks: counts on a fake process group equal the closed form of a rank.

A sample of degrees and pairs runs by default, all of them with the environment variable ALL_RANKS, as in ``make
nightly``.
"""

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

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
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import headcount as hc
from headcount.bench.case import ledger_of
from headcount.bench.counting.rank import saved_bytes
from headcount.formulas import moe_ffn
from headcount.formulas.plan import PlanError, parse
from headcount.formulas.rank import rank_costs
from headcount.models import sharded
from headcount.models.build import build, example_inputs, make_module
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import make_config
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.configs.registry import ATTENTIONS
from tests.agreement import exchange
from tests.cases import MODEL_CASES, MODEL_FIELDS, MODEL_LENGTHS, WithInputs

# results of divided layers are views, to which nothing writes
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")

WORLD = 16
B, T = 3, 56
HEADS = {"d_model": 88, "num_heads": 8, "head_dim": 10}
MOH = HEADS | {"num_shared_heads": 3, "top_k": 2}
NORMS = MOH | {"num_heads": 16, "num_kv_heads": 8, "router": "query_norm"}
LAYERS = {
    "mha": ATTENTIONS["mha"](**HEADS, bias=False),
    "gqa": ATTENTIONS["mha"](**HEADS | {"num_heads": 24, "num_kv_heads": 8}, bias=False),
    "moh": ATTENTIONS["moh"](**MOH, bias=False),
    "moh_by_norms": ATTENTIONS["moh"](**NORMS, bias=False),
    "moh-ideal": ATTENTIONS["moh"](**MOH, form="ideal"),
    "moa": ATTENTIONS["moa"](d_model=24, num_experts=32, top_k=8, head_dim=5),
    "mla": ATTENTIONS["mla"](**HEADS, rotary_dim=6, value_dim=7, kv_rank=13, query_rank=11),
    "mla-ideal": ATTENTIONS["mla"](**HEADS, kv_rank=13, form="ideal"),
    "switchhead": ATTENTIONS["switchhead"](**HEADS | {"head_dim": 5}, num_experts=3, top_k=2),
}
LLAMA_SIZES = {"num_layers": 2, "d_model": 32, "d_ff": 48, "vocab_size": 80, "num_heads": 8, "num_kv_heads": 8}
LLAMA = hc.preset("llama3-8b", LLAMA_SIZES)
LLAMA_LENGTHS = {"batch_size": 2, "seq_len": 24}
MOA = {"d_model": 24, "head_dim": 5}
MIXTURE = {"d_model": 24, "d_ff": 10, "num_experts": 16, "top_k": 8}
EXPERTS = {
    "moa-E32-K8": ATTENTIONS["moa"](num_experts=32, top_k=8, **MOA),
    "moa-E64-K2": ATTENTIONS["moa"](num_experts=64, top_k=2, **MOA),
    "moa-E32-K16": ATTENTIONS["moa"](num_experts=32, top_k=16, **MOA),
    "moa-E8-K8": ATTENTIONS["moa"](num_experts=8, top_k=8, **MOA),
    "gated": MixtureFeedForwardConfig(**MIXTURE, gated=True),
    "plain": MixtureFeedForwardConfig(**MIXTURE, gated=False),
}
# DTensor shards large gradients over tokens unless their placement is fixed
LONG = 4096


def pick(cases, number):
    """Return the first ``number`` cases, or all cases with ALL_RANKS in the environment, without repetitions."""
    return list(dict.fromkeys(cases if "ALL_RANKS" in os.environ else cases[:number]))


DEGREES = pick([8, 2, 4], 1)
DIVISIBLE = ["moh", "mla", "gqa", "mha", "moh_by_norms"]


@pytest.fixture(scope="module", autouse=True)
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    yield
    dist.destroy_process_group()


def mesh_of(**degrees):
    """Return a mesh of all ranks with the dimensions ``degrees``, and a dimension ``rest`` for the other ranks."""
    sizes = (WORLD // int(torch.tensor([*degrees.values()]).prod()), *degrees.values())
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("rest", *degrees))
    for part in (mesh, *(mesh[name] for name in degrees)):
        # under FakeTensorMode a mesh would make its coordinates of fake tensors
        part.get_coordinate()
    return mesh


def check_transfers(counted, closed, by=("kind", "axis", "group")):
    """Assert that both lists send equal numbers of elements, by the attributes ``by`` and by pass.

    Sums of gradients belong to the backward pass. Assert also that the sums differ without any one transfer.
    """

    def sums(transfers):
        out = Counter()
        for one in transfers:
            out[*(getattr(one, name) for name in by), one.phase == "forward"] += one.sent
        return out

    wanted = sums(closed)
    assert sums(counted) == wanted
    # a rank may send no rows and still receive some
    given = [one for one in counted if one.own or one.kind != "all_to_all"]
    for transfers in (given, list(closed)):
        for index in range(len(transfers)):
            assert sums(transfers[:index] + transfers[index + 1 :]) != wanted


def check(module, inputs, form, text, synced=False):
    """Compare the counts of a forward pass, and of a forward and backward pass, with the closed form.

    ``synced``: whether gradients are summed over ranks, which only FSDP does.
    """
    (cost,) = rank_costs(form, parse(text))
    with implicit_replication():
        step = hc.count(module, *inputs, backward=True)
        forward = hc.count(module, *inputs)
    assert (forward.macs, step.macs) == (cost.ledger.macs, cost.step_macs)
    # torch has no backward pass of a send: the module sends by an all-to-all with no elements for other ranks
    moved = [
        replace(one, kind="all_to_all") if one.kind == "send" else one
        for one in cost.transfers
        if synced or one.phase != "sync"
    ]
    check_transfers(step.collectives, moved)
    check_transfers(forward.collectives, [one for one in moved if one.phase == "forward"])


def layer_form(config, length=T, batch=B):
    if isinstance(config, MixtureFeedForwardConfig):
        sizes = {"d_m": config.d_model, "F": config.d_ff, "E": config.num_experts, "K": config.top_k}
        return moe_ffn.layer("feed_forward", B=batch, T=length, **sizes, gated=config.gated)
    return ledger_of(config, {"batch_size": batch, "tgt_len": length, "src_len": length})


def tokens(config, length=T, batch=B, device="meta"):
    return torch.zeros(batch, length, config.d_model, device=device, requires_grad=True)


@pytest.mark.parametrize("t", DEGREES)
@pytest.mark.parametrize("name", pick(DIVISIBLE, 4))
def test_heads(name, t):
    layer = build(LAYERS[name], device="meta")
    sharded.divide_heads(layer, mesh_of(tp=t)["tp"])
    check(layer, [tokens(LAYERS[name], LONG, 1)], layer_form(LAYERS[name], LONG, 1), f"tp={t}")


@pytest.mark.parametrize("c", DEGREES)
@pytest.mark.parametrize("name", LAYERS)
def test_context(name, c):
    layer = build(LAYERS[name], device="meta")
    exchange.gather_keys(layer, mesh_of(cp=c)["cp"])
    check(layer, [tokens(LAYERS[name], T // c)], layer_form(LAYERS[name]), f"cp={c}")


@pytest.mark.parametrize("c", DEGREES)
@pytest.mark.parametrize("name", ["mha", "gqa", "moh", "moa", "switchhead"])
def test_ring(name, c):
    layer = build(LAYERS[name], device="meta")
    exchange.rotate_keys(layer, mesh_of(cp=c)["cp"])
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


@pytest.mark.parametrize("c", DEGREES)
def test_torch_computes_a_causal_ring_by_blocks(c):
    own = torch.zeros(3, 5, 14, 8, dtype=torch.bfloat16, device="meta")
    found = hc.count(TorchRing(mesh_of(cp=c)["cp"]), own, own, own)
    # scores and values of the whole square would be 2 T / c T of each head
    assert found.macs * 2 * c == (c + 1) * 2 * 3 * 5 * 14 * (14 * c) * 8
    assert sum(one.sent for one in found.collectives) == (c - 1) * 2 * own.numel()


PAIRS = [("gqa", True), *((name, ring) for name in DIVISIBLE for ring in (False, True))]


@pytest.mark.parametrize(("name", "ring"), pick([one for one in PAIRS if one != ("mla", True)], 1))
def test_heads_and_context(name, ring):
    mesh = mesh_of(cp=2, tp=2)
    layer = build(LAYERS[name], device="meta")
    sharded.divide_heads(layer, mesh["tp"])
    (exchange.rotate_keys if ring else exchange.gather_keys)(layer, mesh["cp"])
    text = "tp=2,cp=2:ring" if ring else "tp=2,cp=2"
    check(layer, [tokens(LAYERS[name], T // 2)], layer_form(LAYERS[name]), text)


@pytest.mark.parametrize("d", DEGREES)
@pytest.mark.parametrize("name", pick(["moh", "gated", *LAYERS, "plain"], 2))
def test_weights(name, d):
    config, mesh, fake = (LAYERS | EXPERTS)[name], mesh_of(dp=d), FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        layer, x = make_module(config), tokens(config, device="cpu")
    fully_shard(layer, mesh=mesh["dp"])
    with fake:
        check(layer, [x], layer_form(config), f"dp={d},fsdp", synced=True)


@pytest.mark.parametrize(
    ("name", "axis"),
    pick([("mha", "tp"), ("gqa", "cp"), *((name, "tp") for name in DIVISIBLE), *((name, "cp") for name in LAYERS)], 2),
)
def test_weights_and_another_axis(name, axis):
    data = "dp" if axis == "tp" else "replica"
    mesh, fake = mesh_of(**{data: 2, axis: 2}), FakeTensorMode(allow_non_fake_inputs=True)
    own = T // 2 if axis == "cp" else T
    with fake:
        layer, x = make_module(LAYERS[name]), tokens(LAYERS[name], own, device="cpu")
    weights = mesh[data]
    if axis == "tp":
        sharded.divide_heads(layer, mesh["tp"])
    else:
        exchange.gather_keys(layer, mesh["cp"])
        # weights are divided over all ranks that see other tokens
        weights = mesh["replica", "cp"]._flatten("dp")
        weights.get_coordinate()
    fully_shard(layer, mesh=weights)
    with fake:
        check(layer, [x], layer_form(LAYERS[name]), f"dp=2,{axis}=2,fsdp", synced=True)


class Experts(nn.Module):
    """A layer whose experts are on several ranks, all of which select the same experts for their tokens.

    Each expert has equally many rows.
    """

    def __init__(self, config, run, mesh, length):
        super().__init__()
        self.layer, self.run, self.mesh = build(config), run, mesh
        exchange.own_experts(self.layer, mesh)
        slots = torch.arange(2 * length * config.top_k) % config.num_experts
        self.chosen = slots.view(2, length, config.top_k)

    def forward(self, x):
        return self.run(self.layer, x, self.mesh, self.chosen)


def check_experts(config, e, *, shared, d=1, c=1):
    """Compare a step of experts on ``e`` ranks, weights on ``d`` others by FSDP, keys gathered over ``c``."""
    attends = not isinstance(config, MixtureFeedForwardConfig)
    own, axis = config.num_experts, "tp" if shared else "ep"
    mesh = mesh_of(dp=d, cp=c, **{axis: e})
    module = Experts(config, exchange.shared_experts if shared else exchange.sent_experts, mesh[axis], own)
    if c > 1:
        exchange.gather_keys(module.layer, mesh["cp"])
    if d > 1:
        weights = mesh["dp"] if shared else mesh["dp", axis]._flatten("all")
        weights.get_coordinate()
        for projection in exchange.expert_projections(module.layer):
            # as FSDP keeps the other weights of a layer that is no part of a model
            fully_shard(projection, mesh=mesh["dp"], reshard_after_forward=False)
        fully_shard(module, mesh=weights)
    # rows are sent among ranks that see other tokens: of a sequence, or for want of attention of other sequences
    ranks = {"tp": e} if shared else {"cp": e} if attends else {"dp": e * d}
    ranks = {"dp": d, "cp": c, **ranks}
    text = ",".join(f"{name}={n}" for name, n in ranks.items()) + f",ep={e}" + ":replicated" * shared
    form = layer_form(config, own * ranks["cp"], 2)
    (cost,) = rank_costs(form, parse(text + ",fsdp" * (d > 1)))
    step = hc.count(module, tokens(config, own, 2, "cpu"), backward=True)
    assert step.macs == cost.step_macs
    # sums of gradients over tp are what an optimizer's step waits for, not FSDP
    synced = [one for one in cost.transfers if one.phase != "sync" or (d > 1 and one.axis == "dp")]
    # rows, keys and weights are sent over one axis of this mesh, which stands for several axes of the plan
    check_transfers(step.collectives, synced, by=("kind", "group"))


@pytest.mark.parametrize("e", DEGREES)
@pytest.mark.parametrize("name", pick(list(EXPERTS), 2) + pick(["gated"], 1))
@pytest.mark.parametrize("shared", [True, False])
def test_experts(shared, name, e):
    check_experts(EXPERTS[name], e, shared=shared)


@pytest.mark.parametrize("name", pick(["moa-E8-K8", "gated", *EXPERTS], 2))
@pytest.mark.parametrize("shared", [True, False])
def test_experts_and_weights(shared, name):
    check_experts(EXPERTS[name], 2, shared=shared, d=2)


def test_experts_and_context():
    check_experts(EXPERTS["moa-E8-K8"], 2, shared=True, c=2)


def check_model(config, lengths, text, divide, device="cpu"):
    """Compare a step of a small model that ``divide`` divides with its closed form."""
    (cost,) = rank_costs(ledger_of(config, lengths), parse(text))
    fake = FakeTensorMode(allow_non_fake_inputs=True) if device == "cpu" else nullcontext()
    with fake, torch.device(device):
        model = make_module(config)
    with fake:
        inputs = example_inputs(config, lengths, device=device)
    divide(model)
    with implicit_replication(), fake:
        step = hc.count(WithInputs(model, inputs), backward=True)
    assert step.macs == cost.step_macs
    # without FSDP, sums of gradients are what an optimizer's step waits for
    check_transfers(step.collectives, [one for one in cost.transfers if one.phase != "sync" or "fsdp" in text])
    return model, cost


def small_model(name):
    """Return configuration and lengths of a case."""
    config = make_config(MODEL_FIELDS[name])
    return config, {length: (MODEL_LENGTHS | MODEL_CASES[name])[length] for length in config.lengths}


@pytest.mark.parametrize("sequence", pick([True, False], 1))
@pytest.mark.parametrize("t", DEGREES)
def test_llama_by_tensor_and_sequence(sequence, t):
    mesh, text = mesh_of(tp=t)["tp"], f"tp={t},sp" if sequence else f"tp={t}"
    check_model(LLAMA, LLAMA_LENGTHS, text, lambda model: sharded.divide_model(model, mesh, sequence), device="meta")


@pytest.mark.parametrize(("t", "d"), pick([(1, 8), (2, 2), (1, 2), (1, 4), (2, 8), (4, 4)], 1))
def test_llama_by_weights(t, d):
    mesh = mesh_of(dp=d, tp=t)

    def divide(model):
        if t > 1:
            sharded.divide_model(model, mesh["tp"], sequence=True)
        sharded.divide_weights(model, mesh["dp"])

    model, cost = check_model(LLAMA, LLAMA_LENGTHS, f"dp={d},fsdp" + f",tp={t},sp" * (t > 1), divide)
    assert sum(p.to_local().numel() for p in model.parameters()) == cost.held["weights"]


@pytest.mark.parametrize(
    ("g", "t", "d"), pick([(1, 8, 1), (2, 4, 2), *((g, t, d) for t in (2, 4, 8) for g in (1, 2, 4) for d in (1, 2))], 2)
)
def test_fewer_key_value_heads_than_ranks(g, t, d):
    mesh, config = mesh_of(dp=d, tp=t), hc.preset("llama3-8b", LLAMA_SIZES | {"num_kv_heads": g})

    def divide(model):
        sharded.divide_model(model, mesh["tp"], sequence=True)
        if d > 1:
            sharded.divide_weights(model, mesh["dp"])

    text = f"tp={t},sp" + f",dp={d},fsdp" * (d > 1)
    model, cost = check_model(config, LLAMA_LENGTHS, text, divide, device="cpu" if d > 1 else "meta")
    assert sum(p.to_local().numel() for p in model.parameters()) == cost.held["weights"]
    # a rank holds rows of one head of 4 where there are fewer heads than ranks, or of its part of the heads
    rows = 4 * max(1, g // t)
    assert {len(layer.self_attn.k_proj.weight.to_local()) for layer in model.layers} == {rows // d}


@pytest.mark.parametrize(
    ("sizes", "t", "message"),
    [
        ({"num_heads": 6, "num_kv_heads": 3}, 4, "must divide num_heads, and 4 does not divide 6"),
        ({"num_heads": 8, "num_kv_heads": 8}, 16, "must divide num_heads, and 16 does not divide 8"),
        ({"num_heads": 12, "num_kv_heads": 6}, 4, "must divide num_kv_heads, and 4 does not divide 6"),
        ({"num_heads": 24, "num_kv_heads": 3}, 4, "must divide the number of ranks, and 3 does not divide 4"),
    ],
)
def test_heads_that_ranks_do_not_divide_raise(sizes, t, message):
    layer = build(ATTENTIONS["mha"](d_model=24, head_dim=4, **sizes), device="meta")
    with pytest.raises(ConfigError, match=message):
        sharded.divide_heads(layer, mesh_of(tp=t)["tp"])


def test_models_of_other_blocks_raise():
    config = make_config(MODEL_FIELDS["decoder-learned"])
    with pytest.raises(ConfigError, match="feed-forward blocks of decoder models are not divided here"):
        sharded.divide_model(make_module(config), mesh_of(tp=2)["tp"])


WEIGHTS = [
    name
    for name, values in MODEL_CASES.items()
    # torch 2.13 gathers no weights that two groups share; routers are counted without noise, which is trained
    if "num_predicted" not in values and "noisy" not in values
]


@pytest.mark.parametrize("d", DEGREES)
@pytest.mark.parametrize("name", pick(["dit-moh-ideal", "decoder-learned", "images-moh", "light", *WEIGHTS], 2))
def test_models_by_weights(name, d):
    mesh = mesh_of(dp=d)["dp"]

    def divide(model):
        lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
        for block in (block for blocks in reversed(lists) for block in blocks):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    model, cost = check_model(*small_model(name), f"dp={d},fsdp", divide)
    sizes = [(p.to_local().numel(), p.requires_grad) for p in model.parameters()]
    assert sum(size for size, _ in sizes) == cost.held["weights"]
    assert sum(size for size, trained in sizes if trained) == cost.held["gradients"] == cost.held["optimizer"]


def test_diffusion_transformer_by_tensor():
    mesh = mesh_of(tp=2)["tp"]

    def divide(model):
        for block in model.blocks:
            sharded.divide_heads(block.self_attn, mesh)
            parallelize_module(block.feed_forward, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})

    check_model(*small_model("dit"), "tp=2", divide, device="meta")


@pytest.mark.parametrize(
    ("name", "text"),
    [("mha", "tp=3"), ("gqa", "tp=3"), ("mla", "cp=3"), ("gated", "dp=3,ep=3"), ("moa-E8-K8", "tp=3,ep=3:replicated")],
)
def test_degree_that_does_not_divide_raises(name, text):
    degree = text.rpartition(",")[2].partition(":")[0]
    with pytest.raises(PlanError, match=f"^{degree} does not divide [hgTE] = .*; nearest that fit: 2, 4$"):
        rank_costs(layer_form((LAYERS | EXPERTS)[name]), parse(text))


@pytest.mark.parametrize(
    ("name", "why"),
    [("moa", "$"), ("mla-ideal", "$"), ("moh-ideal", "$"), ("switchhead", ": ColwiseParallel currently only support")],
)
def test_indivisible_heads_raise(name, why):
    with pytest.raises(ConfigError, match=f"the heads of {LAYERS[name].variant} cannot be divided{why}"):
        sharded.divide_heads(build(LAYERS[name], device="meta"), mesh_of(tp=2)["tp"])


def test_saved_activations_of_a_rank():
    """The result of the ReLU between two products is saved once, half of 26 columns in float32; weights are not."""
    block = nn.Sequential(nn.Linear(11, 26, bias=False), nn.ReLU(), nn.Linear(26, 7, bias=False)).to("meta")
    parallelize_module(block, mesh_of(tp=2)["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert saved_bytes(block, (torch.zeros(5, 11, device="meta"),), {}) == 4 * 5 * 13
