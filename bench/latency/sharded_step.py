"""One step of a language model that torch divides over the ranks of this process group: build, check and time it.

A watchdog ends a run in which no rank makes progress, and names the rank that the others wait for.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _get_default_store
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import implicit_replication

from headcount.bench.case import Case
from headcount.bench.column import plural
from headcount.bench.latency.correctness import relative_error
from headcount.bench.latency.timing import wall_s
from headcount.formulas.plan import Plan
from headcount.models import sharded
from headcount.models.build import build, example_inputs, make_module

LIMIT = 1e-11
"""Allowed relative error of the divided model in float64."""
WARM_UPS = 2
"""Steps before the first timed one."""
POLL_S = 0.5
"""Seconds between two beats of a rank."""


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
        sharded.divide(model, self.mesh, self.plan.sp, self.plan.zero == 3)
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
        """Return the seconds of each step on each rank, from a barrier to the rank's own end.

        timing.interleave repeats a call as often as a rank's own clock wants; here all ranks run the same steps.
        """
        tokens, own = self.own_tokens(), []
        for step in range(-WARM_UPS, steps):
            model.zero_grad()
            dist.barrier()
            took = wall_s(lambda: self.run(model, tokens), self.device)
            own += [took] if step >= 0 else []
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


class Watchdog(threading.Thread):
    """A context whose thread publishes this rank's progress in the process group's store, and reads the others'.

    Progress is the number of collectives that a rank has started. Where none starts on any rank for ``timeout_s``
    seconds, the first rank that does not hang prints which one does after ``prog``, and exits with code 1.
    torchrun then ends the others; where a process dies, torchrun itself names its rank and its signal.
    """

    def __init__(self, prog: str, groups: Iterable[dist.ProcessGroup], timeout_s: float) -> None:
        super().__init__(daemon=True)
        self.prog, self.groups, self.timeout_s = prog, list(groups), timeout_s
        self.rank, self.keys = dist.get_rank(), [f"headcount/{rank}" for rank in range(dist.get_world_size())]
        # a separate client: the main thread may block the other one
        self.store = _get_default_store().clone()
        self.ended = threading.Event()
        self._publish(0)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    def _publish(self, beat: int) -> None:
        started = sum(group._get_sequence_number_for_group() for group in self.groups)
        self.store.set(self.keys[self.rank], f"{beat} {started}")

    def run(self) -> None:
        """Publish and read until the run has ended."""
        since: dict[tuple, float] = {}
        for beat in count(1):
            if self.ended.wait(POLL_S):
                return
            self._publish(beat)
            found = [tuple(map(int, value.split())) for value in self.store.multi_get(self.keys)]
            beats, started = zip(*found, strict=True)
            now = time.monotonic()
            # since when each rank has its beat, and all have started as many collectives
            since = {key: since.get(key, now) for key in [*enumerate(beats), ("started", *started)]}
            *beaten, moved = since.values()
            if now - moved > self.timeout_s:
                silent = [rank for rank, last in enumerate(beaten) if now - last > self.timeout_s / 2]
                self._end(silent, started)

    def _end(self, silent: Sequence[int], started: Sequence[int]) -> None:
        """Name the ranks that hang and exit, on the first rank that does not."""
        lost = silent or [rank for rank, calls in enumerate(started) if calls == min(started)]
        ready = [rank for rank in range(len(started)) if rank not in lost]
        if self.rank != (ready or lost)[0]:
            return
        names = f"rank{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}" if ready else "all ranks"
        others = f", others up to {max(started)}" * bool(ready)
        why = "stopped" if silent else f"started {plural(min(started), 'collective')}{others}"
        text = f"{self.prog}: error: no progress for {self.timeout_s:g} s: {names} {why}"
        print(text, file=sys.__stderr__, flush=True)
        os._exit(1)
