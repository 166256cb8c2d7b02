"""Count one rank of a module that is divided over ranks, on torch's fake process group: no other process, no data.

A preset is divided by models.sharded, a user module by the user's own function, and a model of transformers also by
the plan that transformers ships.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.utils._pytree import tree_leaves, tree_map_only

from headcount.bench.case import Case
from headcount.bench.counting.copies import META, copy_module
from headcount.bench.counting.devices import FINAL
from headcount.bench.counting.module import build, refusals
from headcount.bench.counting.result import Count, Unknown
from headcount.bench.counting.tools import ModuleCall, RecordedCall
from headcount.bench.targets.target import SHIPPED, Target, is_configuration
from headcount.bench.targets.user_code import Built, UserCodeError, load, run_user_code
from headcount.bench.trace.weights import local_part
from headcount.formulas.plan import Plan, PlanError, parse
from headcount.formulas.rank import RankCost, Transfer
from headcount.models import sharded
from headcount.models.configs.base import ConfigError
from headcount.models.llama import Llama

_NOT_COUNTED = {
    "cp": "causal masks of whole models need the positions of a rank's tokens",
    "ep": "rows that a rank gets depend on the routing of other ranks",
    "hsdp": "replicas of divided weights are not run here",
    "recompute": "activation checkpointing is not run here",
}
"""Why a rank of a whole model is not counted, by word of the plan."""
_run = partial(run_user_code, unchanged=(*FINAL, ConfigError), traces_torch=False)


def count(target: Target, *, columns: Sequence[str], roots: Mapping[str, str]) -> dict[str, Count]:
    """Return the count of a rank of each class of equal ranks by pipeline stage; "all" where there is one stage.

    Of ``columns`` it has ``saved_bytes``. Raises UserCodeError and CounterError.
    """
    with refusals():
        return {stage: one.with_values(target=target) for stage, one in _counts(target, columns, roots)}


def _counts(target: Target, columns: Sequence[str], roots: Mapping[str, str]) -> Iterator[tuple[str, Count]]:
    user_function: Callable[[nn.Module], Any] | None = None
    if target.ranks:
        user_function = divide_as_shipped if target.plan == SHIPPED else load(target.plan, roots.get(target.plan))
    if is_configuration(target.spec) and not user_function:
        raise UserCodeError(
            f"--plan {target.plan} of a configuration has a closed form only; --ranks 2 --plan {SHIPPED} counts a rank"
        )
    with torch.device(META):
        built, options = build(target, roots)
    if user_function:
        how = f"rank {target.rank} of {target.ranks}, divided by {target.plan}"
        built = replace(built, notes=(*built.notes, how))
        with fake_process_group(target.ranks, target.rank):
            yield "all", _count(built, partial(_divide_by_user, user_function), options, columns)
        return
    try:
        plan = parse(target.plan)
        _check_countable(built.module, plan)
        costs = Case.of(target.spec, target.settings, target.lengths, plan=plan).ranks
        with fake_process_group(plan.ranks), implicit_replication():
            for cost in costs:
                # what a first stage reads is data, what a later one reads the result of another rank
                is_first = cost.stage in ("all", "first")
                of_stage = {**options, "input_gradients": not is_first}
                yield cost.stage, _count(_stage(built, cost), partial(_divide_by_plan, plan), of_stage, columns)
    except (PlanError, ConfigError) as error:
        raise UserCodeError(str(error)) from None


@contextmanager
def fake_process_group(size: int, rank: int = 0) -> Iterator[None]:
    """Make a process group of ``size`` ranks, of which ``rank`` alone exists: collectives leave garbage."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _divide_by_user(function: Callable[[nn.Module], Any], module: nn.Module) -> nn.Module:
    divided = function(module)
    if not isinstance(divided, nn.Module):
        raise UserCodeError(f"{function.__name__} must return the divided module, not a {type(divided).__name__}")
    return divided


def divide_as_shipped(module: nn.Module) -> nn.Module:
    """Return a model of transformers, divided by the tensor-parallel plan that it ships.

    Raises UserCodeError for another model, and for one without a plan.
    """
    if not hasattr(module, "tp_plan"):
        raise UserCodeError(f"--plan {SHIPPED} divides models of transformers, not a {type(module).__name__}")
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    ranks = dist.get_world_size()
    try:
        plan, *_ = module._resolve_parallel_plans(DistributedConfig(tp_size=ranks))
    except ValueError:
        raise UserCodeError(f"transformers ships no tensor-parallel plan for {type(module).__name__}") from None
    table, head = module.get_input_embeddings(), module.get_output_embeddings()
    is_tied = head is not None and head.weight is table.weight
    if is_tied:
        # the plan names both weights, and the library ties them afterwards
        head.weight = nn.Parameter(table.weight.detach().clone())
    apply_tensor_parallelism(module, init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",)), plan)
    if is_tied:
        module.tie_weights()
    return module


def _check_countable(model: nn.Module, plan: Plan) -> None:
    """Raise UserCodeError for a plan whose rank has a closed form only."""
    for name, reason in _NOT_COUNTED.items():
        if (value := getattr(plan, name)) not in (1, "none"):
            raise UserCodeError(f"{name}={value} has a closed form only: {reason}")
    if not isinstance(model, Llama) and (plan.tp, plan.pp, plan.zero == 3) != (1, 1, False):
        raise UserCodeError(
            f"{type(model).__name__} under {plan} has a closed form only: LLaMA models are divided here"
        )


def _stage(built: Built, cost: RankCost) -> Built:
    """Return the layers of a pipeline stage with their input; the whole model where there is no pipeline."""
    if cost.layers is None:
        return built
    model, tokens, plan = built.module, built.kwargs["tokens"], cost.plan
    batch, length = tokens.shape
    stage = sharded.Stage(model, *cost.layers, length)
    if stage.embedding is None:
        rows = length // plan.tp if plan.sp else length
        tokens = torch.zeros(batch, rows, model.config.d_model, dtype=model.norm.weight.dtype, device=META)
    return replace(built, module=stage, args=(tokens,), kwargs={})


def _divide_by_plan(plan: Plan, module: nn.Module) -> nn.Module:
    axes = {"pp": plan.pp, "dp": plan.dp, "tp": plan.tp}
    mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    sharded.divide(module, mesh, plan.sp, plan.zero == 3, plan.keep)
    return module


def _count(
    built: Built, divide: Callable[[nn.Module], nn.Module], options: Mapping[str, Any], columns: Sequence[str]
) -> Count:
    """Return the count of a rank of ``built``, whose copy ``divide`` divides over the ranks of the process group.

    It runs on meta, or with FakeTensors where FSDP wraps it, which takes no meta tensors.
    """

    def divided(convert: Callable[[Tensor], Tensor]) -> ModuleCall:
        module = _run("dividing the module", lambda: divide(copy_module(built.module, convert)))
        return module, *tree_map_only(Tensor, convert, built.call[1:])

    call, fake = divided(lambda tensor: tensor.to(META)), nullcontext()
    if any(isinstance(part, FSDPModule) for part in call[0].modules()):
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        call = divided(lambda tensor: FakeTensor(fake, tensor.to(META), torch.device("cpu")))
    found: dict[str, int | Unknown] = {}
    with fake:
        count = _run("running a rank", lambda: RecordedCall(*call, **options).headcount)
        if "saved_bytes" in columns:
            found["saved_bytes"] = _run("running a rank", lambda: saved_bytes(*call))
    return count.with_values(
        device=META,
        collectives=tuple(_named_axes(count.collectives, call[0])),
        columns=found,
        versions={**count.versions, **built.versions},
        notes=(*built.notes, *count.notes),
    )


def _named_axes(collectives: Iterable[Transfer], module: nn.Module) -> Iterator[Transfer]:
    """Iterate over ``collectives`` with the name of the mesh's dimension where it is all ranks: torch has one group for
    both, and names it for itself."""
    meshes = {parameter.device_mesh for parameter in module.parameters() if isinstance(parameter, DTensor)}
    dimensions = [pair for mesh in meshes for pair in zip(mesh.mesh_dim_names or (), mesh.shape, strict=False)]
    # meshes of the same ranks may name them by one dimension or by two
    names = [name for name, size in dimensions if size == dist.get_world_size()]
    for one in collectives:
        yield replace(one, axis=names[0]) if names and one.axis == "default_pg" else one


def saved_bytes(module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> int:
    """Return the bytes that a forward pass keeps for its backward pass, each storage once, without weights and inputs.

    Of a DTensor it is the rank's part. Gathered weights of FSDP are those that a module has while it runs.
    """
    excluded = {_storage(tensor)._cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
    stored = {}

    def exclude(part: nn.Module, _: tuple) -> None:
        excluded.update(_storage(parameter)._cdata for parameter in part.parameters(recurse=False))

    def pack(tensor: Tensor) -> Tensor:
        storage = _storage(tensor)
        stored[storage._cdata] = storage
        return tensor

    hooks = [part.register_forward_pre_hook(exclude) for part in module.modules()]
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    return sum(storage.nbytes() for address, storage in stored.items() if address not in excluded)


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    """Return the memory of a tensor, of the rank's part of a DTensor, and of the result of a collective."""
    part = local_part(tensor)
    return getattr(part, "elem", part).untyped_storage()
