"""One step of a language model that torch divides over the ranks of this process group: build, check and time it."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import implicit_replication

from headcount.bench.case import Case
from headcount.bench.latency.correctness import relative_error
from headcount.bench.latency.timing import synchronize
from headcount.formulas.plan import Plan
from headcount.models import sharded
from headcount.models.build import build, example_inputs, make_module

LIMIT = 1e-11
"""Allowed relative error of the divided model in float64."""
WARM_UPS = 2
"""Steps before the first timed one."""


class NotEqual(Exception):
    """The divided model does not compute what the whole model computes."""

    exit_code = 1


@dataclass(frozen=True)
class ShardedStep:
    """A step of ``case`` under ``plan`` on ``device``, forward, and backward where it ``trains``.

    ``case`` has the sequences of all ranks. The gradient of the logits is the logits: no loss, no optimizer.
    """

    case: Case
    plan: Plan
    device: str
    trains: bool

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The ranks by dp and tp, neighbours in tp."""
        return init_device_mesh(self.device, (self.plan.dp, self.plan.tp), mesh_dim_names=("dp", "tp"))

    def groups(self) -> list[dist.ProcessGroup]:
        """Return all process groups of this rank."""
        return [dist.group.WORLD, *self.mesh.get_all_groups()]

    def tokens(self) -> Tensor:
        """Return the tokens (dp x B, T) of all ranks."""
        return example_inputs(self.case.config, self.case.lengths, device=self.device)["tokens"]

    def own_tokens(self) -> Tensor:
        """Return the tokens (B, T) of this rank."""
        return self.tokens().chunk(self.plan.dp)[self.mesh["dp"].get_local_rank()]

    def divide(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
        """Return the divided model in ``dtype``; rank 0 sends the ``weights`` of the whole model, others have none."""
        with torch.device("meta"):
            model = make_module(self.case.config).to(dtype)
        if self.plan.tp > 1:
            sharded.divide_model(model, self.mesh["tp"], self.plan.sp)
        if self.plan.zero:
            sharded.divide_weights(model, self.mesh["dp"])
        model.to_empty(device=self.device)
        set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        return model.eval()

    def run(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Run a step and return this rank's logits."""
        with implicit_replication():
            logits = self._run_alone(model, tokens)
            if self.trains:
                self._sum_gradients(model)
        return logits

    def _run_alone(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Run a step without sums of gradients over ranks and return the logits."""
        with torch.set_grad_enabled(self.trains):
            logits = model(tokens)
            if self.trains:
                logits.backward(logits.detach())
        return logits.detach()

    def _sum_gradients(self, model: nn.Module) -> None:
        """Sum what neither DTensor nor FSDP sums: norms' gradients over tp, and without FSDP all over dp."""
        for parameter in model.parameters():
            if isinstance(parameter, DTensor):
                parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
            if self.plan.dp > 1 and not self.plan.zero:
                local = parameter.grad.to_local() if isinstance(parameter, DTensor) else parameter.grad
                dist.all_reduce(local, group=self.mesh["dp"].get_group())
                local /= self.plan.dp

    def check(self) -> dict[str, Tensor]:
        """Compare the step with the whole model's, in float64, and return the weights; only rank 0 has any.

        Raises NotEqual on every rank, with the first result that differs.
        """
        whole = build(self.case.config, device=self.device, dtype=torch.float64) if dist.get_rank() == 0 else None
        model = self.divide(whole.state_dict() if whole else {}, torch.float64)
        # every rank takes part in gathering logits and gradients, one at a time
        own = self.run(model, self.own_tokens())
        logits = DTensor.from_local(own, self.mesh, [Shard(0), Shard(2)]).full_tensor()
        found = chain([("logits", logits)], self._gradients(model))
        expected = self._run_alone(whole, self.tokens()) if whole else None
        problem = [None]
        for name, result in found:
            if whole and not problem[0]:
                # FSDP makes means over dp
                exact = expected if name == "logits" else whole.get_parameter(name).grad / self.plan.dp
                error = relative_error(result, exact)
                problem[0] = None if error <= LIMIT else f"{name}: relative error {error:.1e}, allowed {LIMIT:.0e}"
        dist.broadcast_object_list(problem)
        if problem[0]:
            raise NotEqual(f"the divided model is not the whole one in float64: {problem[0]}")
        return whole.state_dict() if whole else {}

    def _gradients(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and whole gradients."""
        for name, parameter in model.named_parameters() if self.trains else ():
            gradient = parameter.grad
            yield name, gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

    def time(self, model: nn.Module, steps: int) -> list[list[float]]:
        """Return the seconds of each step on each rank, from a barrier to the rank's own end."""
        tokens, own = self.own_tokens(), []
        for step in range(-WARM_UPS, steps):
            model.zero_grad()
            dist.barrier()
            synchronize(self.device)
            started = time.perf_counter()
            self.run(model, tokens)
            synchronize(self.device)
            own += [time.perf_counter() - started] if step >= 0 else []
        by_rank = [None] * dist.get_world_size()
        dist.all_gather_object(by_rank, own)
        return by_rank


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the process group of torchrun: NCCL on GPUs, gloo else. SIGTERM ends the process at once, in a wait too."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    yield
    dist.destroy_process_group()
