"""The collectives of a recorded run: kind, group, and the elements that leave this rank.

Three namespaces of torch have them: functional collectives and DTensor's name their group by a string, those of
``torch.distributed`` by a ProcessGroup.
"""

from collections.abc import Mapping
from typing import Any

from headcount.bench.trace.events import Event, GroupFact, Trace, tensors_in
from headcount.formulas.ledger import divide
from headcount.formulas.rank import Transfer

_FUNCTIONAL = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}
_KINDS: Mapping[str, str] = {
    **{f"_c10d_functional.{name}{end}": kind for name, kind in _FUNCTIONAL.items() for end in ("", "_coalesced")},
    "_c10d_functional.all_reduce_": "all_reduce",
    "_c10d_functional.all_gather_into_tensor_out": "all_gather",
    "_dtensor.shard_dim_alltoall": "all_to_all",
    **dict.fromkeys(
        ("c10d._allgather_base_", "c10d.allgather_", "c10d.allgather_into_tensor_coalesced_"), "all_gather"
    ),
    **dict.fromkeys(("c10d._reduce_scatter_base_", "c10d.reduce_scatter_tensor_coalesced_"), "reduce_scatter"),
    **dict.fromkeys(("c10d.allreduce_", "c10d.allreduce_coalesced_"), "all_reduce"),
    "c10d.alltoall_base_": "all_to_all",
    "c10d.broadcast_": "broadcast",
    "c10d.send": "send",
}
_SILENT = {
    "_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd", "_dtensor.mesh_get_process_group",
    "c10d.recv_", "c10d.recv_any_source_", "c10d.barrier", "c10d.monitored_barrier_", "c10d.check_for_nan",
}  # fmt: skip
"""Calls of these namespaces that send nothing of this rank's."""


def is_known_call(name: str) -> bool:
    """Return whether ``name`` is a known collective, or a call of these namespaces that sends nothing."""
    return name in _KINDS or name in _SILENT


def collectives(trace: Trace) -> tuple[Transfer, ...]:
    """Return a transfer for each collective of a run."""
    return tuple(_transfer(event, trace.groups) for event in trace.operations() if event.name in _KINDS)


def _transfer(event: Event, groups: Mapping[str, GroupFact]) -> Transfer:
    kind, is_c10d = _KINDS[event.name], event.name.startswith("c10d.")
    if is_c10d:
        part = event.args[1 if kind in ("all_gather", "all_to_all") else 0]
    else:
        part = event.out if kind == "reduce_scatter" else event.args[0]
    facts = list(tensors_in(part))
    names = [value for value in (*event.args, *event.kwargs.values()) if isinstance(value, str)]
    # a functional collective names its group last, after the reduction; the others have the group first
    group = groups[names[0 if is_c10d else -1]]
    own = sum(fact.numel for fact in facts)
    if kind == "all_to_all":
        # rows for each rank; those for this rank stay
        splits = _splits(event) or (1,) * group.size
        own = divide((sum(splits) - splits[group.rank]) * own, sum(splits) or 1)
    phase = "backward" if event.backward else "forward"
    axis = group.description.removeprefix("mesh_")
    return Transfer(event.path, kind, axis, group.size, own, phase, facts[0].dtype)


def _splits(event: Event) -> tuple[int, ...]:
    """Return the rows that an all-to-all sends to each rank; empty where it sends equal parts."""
    found: Any = event.args[2] if event.name.startswith("_c10d") else event.args[4] if len(event.args) > 4 else ()
    return tuple(found) if isinstance(found, tuple) else ()
