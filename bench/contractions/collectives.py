"""The collectives of a recorded run: kind, group, and the elements that leave this rank.

Three namespaces of torch have them: functional collectives and DTensor's name their group by a string, those of
``torch.distributed`` by a ProcessGroup.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headcount.bench.trace.events import Event, GroupFact, TensorFact, Trace, tensors_in
from headcount.formulas.ledger import divide
from headcount.formulas.rank import Transfer


class _Call(NamedTuple):
    """A kind of collective, and which argument holds the rank's own part; None for the result."""

    kind: str
    own: int | None = 0


_FUNCTIONAL = {
    "all_gather_into_tensor": _Call("all_gather"),
    "reduce_scatter_tensor": _Call("reduce_scatter", None),
    "all_reduce": _Call("all_reduce"),
    "all_to_all_single": _Call("all_to_all"),
    "broadcast": _Call("broadcast"),
}
_COLLECTIVES: Mapping[str, _Call] = {
    **{f"_c10d_functional.{name}{end}": call for name, call in _FUNCTIONAL.items() for end in ("", "_coalesced")},
    "_c10d_functional.all_reduce_": _Call("all_reduce"),
    "_c10d_functional.all_gather_into_tensor_out": _Call("all_gather"),
    "_dtensor.shard_dim_alltoall": _Call("all_to_all"),
    "c10d._allgather_base_": _Call("all_gather", 1),
    "c10d.allgather_": _Call("all_gather", 1),
    "c10d.allgather_into_tensor_coalesced_": _Call("all_gather", 1),
    "c10d._reduce_scatter_base_": _Call("reduce_scatter", 0),
    "c10d.reduce_scatter_tensor_coalesced_": _Call("reduce_scatter", 0),
    "c10d.allreduce_": _Call("all_reduce"),
    "c10d.allreduce_coalesced_": _Call("all_reduce"),
    "c10d.alltoall_base_": _Call("all_to_all", 1),
    "c10d.broadcast_": _Call("broadcast"),
    "c10d.send": _Call("send"),
}
_SILENT = {
    "_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd", "_dtensor.mesh_get_process_group",
    "c10d.recv_", "c10d.recv_any_source_", "c10d.barrier", "c10d.monitored_barrier_", "c10d.check_for_nan",
}  # fmt: skip
"""Calls of these namespaces that send nothing of this rank's."""


def is_known_call(name: str) -> bool:
    """Return whether ``name`` is a known collective, or a call of these namespaces that sends nothing."""
    return name in _COLLECTIVES or name in _SILENT


def collectives(trace: Trace) -> tuple[Transfer, ...]:
    """Return a transfer for each collective of a run."""
    return tuple(_transfer(event, trace.groups) for event in trace.operations() if event.name in _COLLECTIVES)


def _transfer(event: Event, groups: Mapping[str, GroupFact]) -> Transfer:
    call = _COLLECTIVES[event.name]
    facts = list(tensors_in(event.out if call.own is None else event.args[call.own]))
    names = [value for value in (*event.args, *event.kwargs.values()) if isinstance(value, str)]
    # a functional collective names its group last, after the reduction; the others have the group first
    group = groups[names[0 if event.name.startswith("c10d.") else -1]]
    own = sum(fact.numel for fact in facts)
    if call.kind == "all_to_all":
        # rows for each rank; those for this rank stay
        splits = _splits(event)
        own = (
            (sum(splits) - splits[group.rank]) * _row(facts[0])
            if splits
            else divide((group.size - 1) * own, group.size)
        )
    phase = "backward" if event.backward else "forward"
    axis = group.description.removeprefix("mesh_")
    return Transfer(event.path, call.kind, axis, group.size, own, phase, facts[0].dtype)


def _splits(event: Event) -> tuple[int, ...]:
    """Return the rows that an all-to-all sends to each rank; empty where it sends equal parts."""
    found: Any = event.args[2] if event.name.startswith("_c10d") else event.args[4] if len(event.args) > 4 else ()
    return tuple(found) if isinstance(found, tuple) else ()


def _row(fact: TensorFact) -> int:
    return fact.numel // max(fact.shape[0], 1)
