"""Count a target in a separate process, which runs user code. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from headcount.bench.counters.base import ToolCount
from headcount.bench.counting.result import Count
from headcount.bench.output.progress import stage
from headcount.bench.targets.process import ProcessExited, run_isolated
from headcount.bench.targets.target import Target
from headcount.formulas.ledger import Ledger, at

ACTIVATIONS = {
    "saved_bytes": ("saved_bytes", True),
    "peak_forward_bytes": ("peak_bytes", False),
    "peak_training_bytes": ("peak_bytes", True),
}
"""Field of trace.memory.Activations, and whether of a training step, by column."""
DECODING = ("decode_macs", "decode_bytes", "kv_bytes", "kv_token_bytes")
"""Columns of a decode step."""
MASKED = ("causal_macs", "windowed_macs")
"""Columns without the pairs that masks hide."""
MEASURED = (*ACTIVATIONS, *DECODING, *MASKED, "training_macs", "forward_bytes")
"""Columns of accounts.ACCOUNTS that need a further run of a user module."""


def count_module(
    target: Target,
    counters: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    bytes_each: Mapping[str, int | Fraction] | None = None,
    context: int | None = None,
    window: int | None = None,
    roots: Mapping[str, str] | None = None,
) -> Count:
    """Count ``target`` by every counter of ``counters``.

    ``columns`` of MEASURED are measured too, by ``bytes_each``, ``context`` and ``window`` of accounts.Assumptions.
    With a ``plan`` what one rank of the divided target does is counted; of a preset's pipeline stages one of each kind
    is counted, its name before the paths of its modules. The function of a spec in ``roots`` must be defined in a file
    below that folder.
    Raises what run_isolated does, and CounterError for unsupported operations. A counter that ends the process has
    that as the reason for its missing count.
    """
    if target.plan:
        return _merged(count_ranks(target, saved=False, roots=roots or {}))
    options = {"columns": columns, "bytes_each": bytes_each or {}, "context": context, "window": window}
    count_with = partial(_run, "headcount.bench.counting.module:count", target, **options, roots=roots or {})
    try:
        return count_with(counters=counters)
    except ProcessExited:
        if not counters:
            raise
    count, tools = count_with(counters=()), []
    for name in counters:
        try:
            tools += count_with(counters=(name,)).tools
        except ProcessExited as error:
            tools.append(ToolCount(name, count.macs, None, f"it ended its process, with exit code {error.code}"))
    return replace(count, tools=tuple(tools))


def count_ranks(target: Target, *, saved: bool, roots: Mapping[str, str] | None = None) -> dict[str, Count]:
    """Return the count of a rank of each class of equal ranks of a target under its plan, by pipeline stage.

    ``saved``: count the bytes of saved activations too, as a column. Raises UsageError for a plan whose ranks cannot be
    counted.
    """
    return _run("headcount.bench.counting.rank:count", target, saved=saved, roots=roots or {})


def derive_module(spec: str, settings: Mapping[str, Any], base: Mapping[str, int], step: Mapping[str, int]) -> Any:
    """Return the derive.result.Derivation of a user module, as derive.derivation.derive_module returns it."""
    with stage(f"deriving {spec}"):
        return run_isolated("headcount.bench.derive.derivation:derive_module", spec, settings, base, step, code=[spec])


def _run(task: str, target: Target, **options: Any) -> Any:
    tools = ", ".join(options.get("counters", ()))
    with stage(f"counting {target.spec}" + (f" with {tools}" if tools else "")):
        return run_isolated(task, target, code=target.code, label=target.spec, **options)


def _merged(stages: Mapping[str, Count]) -> Count:
    """Return the counts of pipeline stages as one, with the stage before each path."""
    first, *others = stages.values()
    if not others:
        return first
    parts: dict[str, Any] = {}
    for name in ("ledger", "elementwise", "collectives", "modules", "parameters", "audit"):
        parts[name] = tuple(
            replace(one, path=at(stage, one.path)) for stage, count in stages.items() for one in getattr(count, name)
        )
    for name in ("ledger", "elementwise"):
        parts[name] = Ledger(parts[name])
    parts["uncalled"] = tuple(at(stage, path) for stage, count in stages.items() for path in count.uncalled)
    moved = sum(count.bytes_moved for count in stages.values())
    return replace(first, **parts, bytes_moved=moved, causal_macs=None, other_flops=None)
