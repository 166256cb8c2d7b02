"""Compare two counts of a module: contractions and parameters that changed, were added or were removed."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from math import prod

from headcount.bench.contractions.module_tree import folded, ranges
from headcount.bench.counting.result import Count, bytes_of_element
from headcount.formulas.ledger import WRITTEN_ELEMENTWISE, Entry, divide
from headcount.models.configs.numbers import parse_amount

CHANGED, ADDED, REMOVED = "changed", "added", "removed"
MACS, ELEMENTWISE, PARAMS, SENT = "MACs", "elementwise", "params", "bytes sent"
"""Compared quantities: contractions in ``macs``, contractions written elementwise that are not in it, parameters, and
bytes that collectives send."""

LIMITED = {"macs": "MACs", "params": "parameters"}
"""Quantities that a lock may limit, and their units in texts."""
UNITS = {MACS: "MACs", ELEMENTWISE: "elementwise MACs", PARAMS: "parameters", SENT: "bytes sent"}
"""Compared quantities and their units in texts."""
LETTERS = "bmijn"
"""The order in which sizes are printed: b products of (m, i) by (i, j), n times."""

Sizes = tuple[tuple[str, int], ...]
"""Sizes by letter."""
Side = tuple[Sizes, int]
"""Sizes and repetitions of a term in one of two counts."""
Term = tuple[str, str, str, Sizes]
"""A term or a parameter: its quantity, module path, kind and sizes."""
Amounts = Counter[Term]
"""Repetitions by term."""


@dataclass(frozen=True)
class Change:
    """One change of all modules in ``paths``; ``old`` is None for an addition, ``new`` for a removal."""

    quantity: str
    kind: str
    old: Side | None
    new: Side | None
    paths: tuple[str, ...]

    @property
    def what(self) -> str:
        """The kind of change."""
        return ADDED if self.old is None else REMOVED if self.new is None else CHANGED

    @property
    def amounts(self) -> tuple[int, int]:
        """MACs, parameter elements or bytes sent, of all ``paths`` in the old and in the new count."""
        old, new = (side[1] * prod(dict(side[0]).values()) if side else 0 for side in (self.old, self.new))
        return len(self.paths) * old, len(self.paths) * new

    @property
    def path(self) -> str:
        """One pattern for all paths: ``layers.0-2,5.proj``, or ``layers.*.experts.*`` if several indices differ."""
        names = [sorted(set(column)) for column in zip(*(path.split(".") for path in self.paths), strict=True)]
        several = sum(len(column) > 1 for column in names) > 1
        return ".".join(one[0] if len(one) == 1 else "*" if several else ",".join(ranges(one)) for one in names)

    @property
    def sizes(self) -> str:
        """Number of modules and their sizes as text, of a change ``3 x m=35 i=6->8``."""
        sides = [side for side in (self.old, self.new) if side]
        letters = {tuple(letter for letter, _ in sizes) for sizes, _ in sides}
        text = _sizes(sides) if len(letters) == 1 else " -> ".join(_sizes([side]) for side in sides)
        return _times(str(len(self.paths)), text)


def natural(path: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a module path that puts layers.2 before layers.10."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in path.split(".")]


def contractions(count: Count) -> list[tuple[str, Entry]]:
    """Return each entry of a contraction, those written elementwise too, with its quantity: MACS or ELEMENTWISE."""
    found = [(MACS, entry) for entry in count.products]
    if not count.included:
        found += [(ELEMENTWISE, entry) for entry in count.elementwise if entry.kind == WRITTEN_ELEMENTWISE]
    return found


def amounts(count: Count) -> Amounts:
    """Return the repetitions of each term and parameter, by quantity, module path, kind and sizes.

    Frozen and trained parameters are different kinds.
    """
    found: Counter = Counter()
    for quantity, term in contractions(count):
        sizes = sorted(term.dims.items(), key=lambda size: (LETTERS.find(size[0]), size))
        found[quantity, term.path, term.kind, tuple(sizes)] += term.times
    for sent in count.collectives:
        size = bytes_of_element(sent.element) * divide(sent.sent, sent.times)
        found[SENT, sent.path, f"{sent.kind} {sent.axis} {sent.phase}", (("bytes", size),)] += sent.times
    for one in count.parameters:
        shape = tuple((f"n{axis}", size) for axis, size in enumerate(one.shape))
        found[PARAMS, one.path, "trained" if one.trainable else "frozen", shape] += one.times
    return found


def differing(old: Count, new: Count) -> tuple[Amounts, Amounts]:
    """Return the amounts of each count that the other does not have.

    Where values choose the parameters of a token, they also divide tokens among experts: terms of modules that differ
    in indices alone, whose sizes are others in one letter with the same sum, do not differ.
    """
    before, after = amounts(old), amounts(new)
    left = Counter({term: times for term, times in before.items() if after[term] != times})
    right = Counter({term: times for term, times in after.items() if before[term] != times})
    for letter in LETTERS if new.active_params != new.used_params else "":
        groups: dict[tuple, tuple[list[Term], list[Term]]] = defaultdict(lambda: ([], []))
        for place, rows in enumerate((left, right)):
            for term in rows:
                quantity, path, kind, sizes = term
                if letter in dict(sizes):
                    others = tuple(size for size in sizes if size[0] != letter)
                    groups[quantity, folded(path), kind, others][place].append(term)
        for terms in groups.values():
            sums = [
                sum(rows[term] * dict(term[3])[letter] for term in own)
                for rows, own in zip((left, right), terms, strict=True)
            ]
            for rows, own in zip((left, right), terms, strict=True):
                for term in own if sums[0] == sums[1] else ():
                    del rows[term]
    return left, right


def changes(old: Count, new: Count) -> list[Change]:
    """Return the differences by quantity and path; equal ones of modules that differ in indices alone are merged."""
    sides: dict[tuple[str, str, str], tuple[list[Side], list[Side]]] = defaultdict(lambda: ([], []))
    for place, rows in enumerate(differing(old, new)):
        for (quantity, path, kind, sizes), times in rows.items():
            sides[quantity, path, kind][place].append((sizes, times))
    merged: dict[tuple[str, str, Side | None, Side | None, str], list[str]] = defaultdict(list)
    for (quantity, path, kind), (left, right) in sides.items():
        for old_side, new_side in zip_longest(sorted(left), sorted(right)):
            merged[quantity, kind, old_side, new_side, folded(path)].append(path)
    found = [
        Change(quantity, kind, old_side, new_side, tuple(sorted(paths, key=natural)))
        for (quantity, kind, old_side, new_side, _), paths in merged.items()
    ]
    return sorted(found, key=lambda one: (one.quantity, natural(one.paths[0]), one.kind, one.what, one.sizes))


def equal(old: Count, new: Count) -> bool:
    """Return whether both have the same terms, parameters, unsupported operations and uncalled modules."""
    unsupported = [{line.text() for line in one.unsupported} for one in (old, new)]
    return not any(differing(old, new)) and unsupported[0] == unsupported[1] and not uncalled_changes(old, new)


def failures(locked: Count, counted: Count) -> list[str]:
    """Return why ``counted`` fails the check of a lock: the limits that it does not meet; without limits, a change."""
    if counted.limits:
        return [*unmet_limits(counted).values()]
    return [] if equal(locked, counted) else ["the count is not as locked"]


def uncalled_changes(old: Count, new: Count) -> list[str]:
    """Return the modules that ran in only one of two counts; none if a count has no list of uncalled modules."""
    if old.uncalled is None or new.uncalled is None:
        return []
    return sorted({*old.uncalled} ^ {*new.uncalled}, key=natural)


def limits_at(count: Count, given: Mapping[str, int | str]) -> dict[str, int]:
    """Return the limits of quantities of ``count``, as limit_at reads each.

    Raises ValueError for a quantity that has no limit.
    """
    for name in given:
        if name not in LIMITED:
            raise ValueError(f"{name!r} has no limit; choose from {', '.join(LIMITED)}")
    return {name: limit_at(most, getattr(count, name)) for name, most in given.items()}


def limit_at(most: int | str, value: int) -> int:
    """Return a limit: a whole number, as 2.1G, or a percentage above ``value``, as +5%.

    Raises ValueError for anything else.
    """
    text = str(most)
    if percentage := re.fullmatch(r"\+(\d+(?:\.\d+)?) ?%", text):
        return int(value * (100 + Fraction(percentage[1])) / 100)
    if not text.startswith("+"):
        with suppress(ValueError):
            return parse_amount(text)
    raise ValueError(f"{text!r} is no limit; write +5% or 2.1G")


def unmet_limits(count: Count) -> dict[str, str]:
    """Return why a count does not meet its limits, by quantity. MACs that are incomplete meet none."""
    found = {}
    for name, most in (count.limits or {}).items():
        if (value := getattr(count, name)) > most:
            found[name] = f"{value:,} {LIMITED[name]}, above the limit of {most:,}"
        elif name == "macs" and count.unsupported:
            lines = ", ".join(line.text() for line in count.unsupported)
            found[name] = f"its MACs lack those of {lines}, which --formula gives"
    return found


def total(count: Count, quantity: str) -> int:
    """Return the total of a quantity."""
    separate = 0 if count.included else count.elementwise_macs
    return {MACS: count.macs, ELEMENTWISE: separate, PARAMS: count.params, SENT: count.sent_bytes}[quantity]


def percent(before: int, after: int) -> Fraction | None:
    """Return the change of a quantity in percent of what it was; None where it was 0."""
    return Fraction(100 * (after - before), before) if before else None


def headline(old: Count, new: Count) -> str:
    """Return the change of each total, ``+32.0 % MACs, +33.3 % parameters``, or that the totals are equal."""
    parts = []
    for quantity, unit in UNITS.items():
        before, after = total(old, quantity), total(new, quantity)
        if before != after:
            change = percent(before, after)
            parts.append(f"{after - before:+,} {unit}" if change is None else f"{float(change):+,.1f} % {unit}")
    return ", ".join(parts) or "equal totals"


def summary(old: Count, new: Count) -> str:
    """Return one line with the old and new totals."""
    found = changes(old, new)
    parts = []
    for quantity in (MACS, PARAMS, SENT):
        before, after = total(old, quantity), total(new, quantity)
        if quantity == SENT and not (before or after):
            continue
        step = "" if before == after else f" -> {after:,} ({after - before:+,})"
        numbers = Counter(one.what for one in found if one.quantity == quantity for _ in one.paths)
        text = ", ".join(f"{numbers[what]} {what}" for what in (CHANGED, ADDED, REMOVED) if what in numbers)
        parts.append(f"{before:,}{step} {UNITS[quantity]} ({text or 'none changed'})")
    return ", ".join(parts)


def _sizes(sides: Iterable[Side]) -> str:
    """Return repetitions and sizes of sides that have the same letters."""
    sizes, times = zip(*sides, strict=True)
    words = [f"{pairs[0][0]}={_arrow(size for _, size in pairs)}" for pairs in zip(*sizes, strict=True)]
    return _times(_arrow(times), " ".join(words))


def _arrow(values: Iterable[int]) -> str:
    """Return ``8``, or ``6->8`` for two different values."""
    return "->".join(dict.fromkeys(map(str, values)))


def _times(times: str, text: str) -> str:
    return text if times == "1" else f"{times} x {text}"
