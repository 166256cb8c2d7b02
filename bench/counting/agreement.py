"""Compare a count with its closed form, module by module. Imports no torch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from headcount.bench.contractions.module_tree import folded
from headcount.bench.counting.result import Count
from headcount.bench.targets.user_code import UserCodeError
from headcount.bench.training_flops import used_experts
from headcount.formulas.ledger import Entry, Ledger, Size
from headcount.formulas.rank import Transfer

ACTIVE_PARAMS = "active_params"
"""The attribute of a module that states how many of its parameters a token uses."""


def difference(
    count: Count, entries: Iterable[Entry], params: Size, transfers: Iterable[Transfer] = (), phases: Sequence[str] = ()
) -> str | None:
    """Return the first module or collective in which a count differs from its closed form; None where it is equal.

    ``entries`` are the products of the closed form, ``params`` its parameters, ``transfers`` its collectives, of which
    both have those of ``phases``.
    """
    closed = _amounts(entries, params, transfers, phases)
    counted = _amounts(count.ledger, count.params, count.collectives, phases)
    for name, unit in closed | counted:
        if closed[name, unit] != counted[name, unit]:
            numbers = f"{counted[name, unit]:,} {unit} counted, {closed[name, unit]:,} in closed form"
            return f"{name or 'the model'}: {numbers}"
    return None


def with_active_params(count: Count, closed_form: Ledger) -> Count:
    """Return the count of a model with the active parameters of its closed form where the run does not show them."""
    if count.active_params is not None or count.params != closed_form.params:
        return count
    stored: Counter[str] = Counter()
    active: Counter[str] = Counter()
    for entry in closed_form.select(lambda entry: entry.weight):
        stored[folded(entry.path)] += entry.params
        active[folded(entry.path)] += entry.active_params
    modules = []
    for module in count.modules or ():
        path = folded(module.path)
        share = Fraction(active[path], stored[path]) if stored[path] else 1
        modules.append(replace(module, active_params=int(share * module.params)))
    found = count.with_values(modules=tuple(modules))
    return found if found.active_params == closed_form.active_params else count


def with_stated(count: Count, module: Any) -> Count:
    """Return the count with the active parameters that the module states, where the run does not show them.

    Raises UserCodeError for a statement that cannot be.
    """
    stated = getattr(module, ACTIVE_PARAMS, None)
    if stated is None or count.active_params is not None:
        return count
    if type(stated) is not int or not 0 < stated <= count.params:
        raise UserCodeError(
            f"{ACTIVE_PARAMS} of {count.name} must be a whole number of 1 to {count.params:,}, not {stated!r}"
        )
    used = used_experts(count)
    if used and used.active_params != stated:
        raise UserCodeError(
            f"{ACTIVE_PARAMS} of {count.name} is {stated}, and in this run a token uses {used.active_params} "
            f"parameters, {used.top_k} of {used.experts} experts"
        )
    note = f"Active params are as the module states them: {ACTIVE_PARAMS} of {count.name}."
    return count.with_values(stated_active_params=stated, notes=(*(count.notes or ()), note))


def _amounts(
    entries: Iterable[Entry], params: Size, transfers: Iterable[Transfer], phases: Sequence[str]
) -> Counter[tuple[str, str]]:
    """Return MACs by module, parameters, and elements sent by collective, axis and pass, each with its unit.

    Repeated layers are one; a sum of gradients belongs to the backward pass.
    """
    out: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        out[folded(entry.path), "MACs"] += entry.macs
    out["parameters", "elements"] = params
    for one in transfers:
        if one.phase in phases:
            when = "forward" if one.phase == "forward" else "backward"
            out[f"{one.kind} over {one.axis}, {when}", "elements sent"] += one.sent
    return out
