"""LLaMA 3 405B on 16,384 ranks: each class of stages counted in this process, against its closed form.

Run by ``make nightly``. Weights are FakeTensors of a fake process group: no memory, no arithmetic.
"""

import resource
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import implicit_replication

import headcount as hc
from headcount.bench.case import Case
from headcount.formulas.plan import parse
from headcount.formulas.rank import rank_costs
from headcount.models import sharded
from headcount.models.build import make_module
from headcount.models.rotary import rotary_table

SIZES = {"num_layers": 126, "d_model": 16384, "d_ff": 53248, "num_heads": 128, "num_kv_heads": 8}
PLAN, TOKENS, LAYERS = "tp=8,sp,pp=16,dp=128,fsdp", 8192, {"first": 7, "middle": 8, "last": 7}


class Stage(nn.Module):
    """The layers of a pipeline stage, after the embedding in the first and before the logits in the last."""

    def __init__(self, model, name):
        super().__init__()
        self.layers, self.rotary = model.layers, None
        self.embedding = model.embedding if name == "first" else None
        self.norm, self.output_proj = (model.norm, model.output_proj) if name == "last" else (None, None)

    def forward(self, x):
        x = self.embedding(x) if self.embedding else x
        for layer in self.layers:
            x = layer(x, self.rotary)
        return self.output_proj(self.norm(x)) if self.norm else x


def count(name, mesh):
    """Return the count of a step of the stage ``name``, forward and backward of one microbatch."""
    config = hc.preset("llama3-8b", SIZES | {"num_layers": LAYERS[name]})
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with fake:
        model = make_module(config)
        rotary = rotary_table(TOKENS, config.attention.head_dim, config.rope_theta, dtype=torch.bfloat16)
        x = torch.zeros(1, TOKENS // 8, config.d_model, requires_grad=True)
        words = torch.zeros(1, TOKENS, dtype=torch.long)
    torch.set_default_dtype(default)
    sharded.divide_model(model, mesh["tp"], sequence=True)
    stage = Stage(model, name)
    stage.rotary = rotary
    for layer in stage.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(stage, mesh=mesh["dp"])
    with implicit_replication(), fake:
        return hc.count(stage, words if name == "first" else x, backward=True)


def main():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    plan = parse(PLAN)
    dist.init_process_group("fake", rank=plan.ranks // 2, world_size=plan.ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", (plan.pp, plan.dp, plan.tp), mesh_dim_names=("pp", "dp", "tp"))
    for part in (mesh, mesh["dp"], mesh["tp"]):
        part.get_coordinate()
    wrong = 0
    for cost in rank_costs(Case.of("llama3-8b", SIZES, {"seq_len": TOKENS}).ledger, plan):
        found = count(cost.stage, mesh)
        sent = [
            {axis: sum(one.sent for one in moved if one.axis == axis) for axis in ("dp", "tp")}
            for moved in (found.collectives, cost.transfers)
        ]
        equal = found.macs == cost.step_macs and sent[0] == sent[1]
        wrong += not equal
        verdict = "equal" if equal else f"closed form {cost.step_macs:,}, {sent[1]}"
        print(f"{cost.stage}: {cost.ranks:,} ranks, {found.macs:,} MACs, elements sent {sent[0]}: {verdict}")
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{time.process_time():.0f} s of processor time, {used.ru_maxrss >> 10} MiB")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
