"""Count what a command names: one function for presets, layers, modules, configurations and ranks. Imports no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.counters.base import CounterError, ToolCount, version_note
from headcount.bench.counting.result import Count
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.output.progress import stage
from headcount.bench.targets.process import ProcessExited, run_isolated
from headcount.bench.targets.target import Target
from headcount.bench.trace.garbage_collector import importing
from headcount.formulas.ledger import Ledger, at

CLOSED_FORM = "closed-form"
"""The counter that runs nothing: the ledger itself."""
DEVICES = ("cpu", "meta", "cuda")
_COUNTS: dict[tuple, Count] = {}
"""The counts of cases in this process by model, counters and device."""


def check_device(device: str | None, others: Sequence[str] = ("cpu", "meta")) -> None:
    """Raise EnvironmentMissing, naming the ``others``, where ``device`` is cuda and there is none."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EnvironmentMissing(f"no CUDA device on this machine; --device takes {' or '.join(others)} here")


def parse_counters(names: Sequence[str] | None) -> list[str]:
    """Return the counters for command-line words: none or ``all`` means every tool, ``closed-form`` no counting.

    Raises EnvironmentMissing, with how to install it, for one that is not installed.
    """
    if not names or "all" in names:
        return registry.tools()
    found = [name for name in registry.COUNTERS if name in names]
    for name in found:
        registry.check(name)
    return found


def count(
    target: Target | Case,
    counters: Sequence[str] = (),
    *,
    plan: str | None = None,
    columns: Sequence[str] = (),
    given: Assumptions | None = None,
    has_costs: bool = True,
    device: str | None = None,
    roots: Mapping[str, str] | None = None,
) -> Count:
    """Return the count of a target, or the closed form of a case, with what each of ``counters`` reports.

    A target runs in a separate process, and every product of the run is in its count; that of a preset or a layer is
    checked against the closed form. Of a case the closed form is the ledger, under a plan that of the rank whose step
    is the slowest, and the counters run in this process, equal models once.

    Args:
        target: what is counted.
        counters: names of the registry.
        plan: divides a target over ranks, of which one is counted, of each pipeline stage; in place of its own.
        columns: names of accounts; those that a module has after a further run are in the count of a target.
        given: the assumptions of these columns.
        has_costs: whether the count of a target has bytes moved, other FLOPs and MACs without masked pairs.
        device: of the counters of a case; a target has its own.
        roots: folders by the spec of a function that must be defined in a file below it.

    Raises EnvironmentMissing for a device that is not there, what run_isolated does, and CounterError for unsupported
    operations. A counter that fails, or ends the process, has a reason instead of a result.
    """
    if isinstance(target, Case):
        return _count_case(target, counters, device)
    if plan or target.plan:
        return _merged(count_ranks(replace(target, plan=plan or target.plan), roots=roots))
    given = given or Assumptions()
    count_with = partial(
        _run, "headcount.bench.counting.module:count", target, columns=columns, given=given, has_costs=has_costs
    )
    try:
        return count_with(counters=counters, roots=roots or {})
    except ProcessExited:
        if not counters:
            raise
    found, tools = count_with(counters=(), roots=roots or {}), []
    for name in counters:
        try:
            tools += count_with(counters=(name,), roots=roots or {}).tools or ()
        except ProcessExited as error:
            tools.append(ToolCount(name, found.macs, None, f"it ended its process, with exit code {error.code}"))
    return replace(found, tools=tuple(tools))


def _count_case(case: Case, counters: Sequence[str], device: str | None) -> Count:
    """Return the closed form of a case, with what each of ``counters`` reports of its module."""
    if case.plan:
        slowest = max(case.ranks, key=lambda cost: cost.step_macs)
        return Count(f"{case.name}, {case.plan}, stage {slowest.stage}", slowest.ledger, collectives=slowest.transfers)
    closed = Count(case.name, case.ledger)
    if not counters:
        return closed
    if not case.config.has_module:
        reason = "closed form only: no module to count, so the parameters are the closed form's too"
        return closed.with_values(tools=tuple(ToolCount(name, closed.macs, None, reason) for name in counters))
    check_device(device)
    key = case.model, tuple(counters), device
    if key not in _COUNTS:
        with importing():
            from headcount.bench.counting.devices import count_closed_form, model_of
        _COUNTS[key] = count_closed_form(model_of(case), counters, device)
    return _COUNTS[key].with_values(name=case.name)


def count_ranks(
    target: Target, *, columns: Sequence[str] = (), roots: Mapping[str, str] | None = None
) -> dict[str, Count]:
    """Return the count of a rank of each class of equal ranks of a target under its plan, by pipeline stage.

    Of ``columns`` it has ``saved_bytes``. Raises UsageError for a plan whose ranks cannot be counted.
    """
    return _run("headcount.bench.counting.rank:count", target, columns=columns, roots=roots or {})


def derive_module(target: Target, names: Sequence[str], given: Mapping[str, tuple[int, int]]) -> Any:
    """Return the derive.result.Derivation of a user module, as derive.derivation.derive_module returns it."""
    task = "headcount.bench.derive.derivation:derive_module"
    with stage(f"deriving {target.spec}"):
        return run_isolated(task, target, names, given, code=target.code, label=target.spec)


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
    parts["uncalled"] = tuple(at(stage, path) for stage, count in stages.items() for path in count.uncalled or ())
    moved = sum(count.bytes_moved or 0 for count in stages.values())
    return replace(first, **parts, bytes_moved=moved, causal_macs=None, other_flops=None)


def disagreements(count: Count, label: str) -> list[str]:
    """Return a line for each tool that failed or differs from its prediction, and for a wrong number of parameters."""
    tools = count.tools or ()
    lines = [f"{label}: {tool.counter} on {tool.device} failed: {tool.reason}" for tool in tools if tool.has_failed]
    for tool in tools:
        if tool.disagreement:
            note = version_note(registry.counter(tool.counter).VERIFIED)
            lines.append(f"{label}: {tool.counter} on {tool.device} {tool.disagreement}{note}")
    if count.params != count.ledger.params:
        lines.append(f"{label}: the module has {count.params:,} parameters, the ledger {count.ledger.params:,}")
    return lines


def reasons(count: Count) -> list[str]:
    """Return why a tool has no count without having failed, and why one has counted elsewhere than its users do."""
    tools = count.tools or ()
    missing = [tool.reason for tool in tools if tool.reason and not tool.has_failed]
    return [*missing, *(f"{tool.counter} on {tool.device}: {tool.why_there}" for tool in tools if tool.why_there)]


def exit_code(*counts: Count) -> int:
    """Return the exit code of a row of these counts: that of a tool's error where one failed."""
    return CounterError.exit_code if any(tool.has_failed for count in counts for tool in count.tools or ()) else 0


def rule_agreement(tools: Iterable[ToolCount]) -> list[str]:
    """Return how many tools differ from their rules, in words; nothing where nothing was counted."""
    read = [tool for tool in tools if tool.macs is not None]
    wrong = sum(tool.macs != tool.predicted_macs for tool in read)
    return [f"counts that differ from their counter's rules: {wrong} of {len(read)}"] if read else []
