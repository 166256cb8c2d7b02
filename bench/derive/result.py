"""A derived closed form, and the first point of the grid. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

STARTS = {
    "T": 11, "S": 13, "K": 3, "E": 17, "D": 5, "d_model": 19, "h": 6, "g": 2, "d_h": 5, "r": 3, "s": 2, "B": 2,
    "K_ff": 4, "E_ff": 9, "N": 1, "N_enc": 1, "N_dec": 1,
}  # fmt: skip
"""First values that fit the letters' meaning: no more experts selected than exist, groups that divide the heads."""


def starts(letters: Mapping[str, str]) -> dict[str, int]:
    """Return a first value for each name: one that fits its letter's meaning, else an unused prime."""
    free = (prime for prime in sympy.primerange(50) if prime not in STARTS.values())
    return {name: STARTS.get(letter) or STARTS.get(name) or next(free, 53) for name, letter in letters.items()}


@dataclass(frozen=True)
class Derivation:
    """MACs by kind as polynomials in the sizes, the method that found them, and the domain where they hold.

    Attributes:
        by_kind: the polynomials; empty where the count is none.
        method: how they were found, and the points that confirmed them.
        domain: comparisons of sizes that the run made.
        tried: bounds beyond which the module raised or counted otherwise.
        at_one: sizes of 1 that counted the same, as texts.
        layout: comparisons by which torch chose memory layouts.
        other_layouts: the sizes of those that need more than sizes of at least 2.
        interpolated: sizes in which the form is fitted to counts, and is proved at the counted values alone.
        witness: the point at which the count is no polynomial; None where it is one.
        sizes: the variables of a module, and what each is of its inputs.
        fixed: the sizes of inputs that the module fixes.
    """

    by_kind: Mapping[str, sympy.Expr]
    method: str
    domain: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    at_one: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    other_layouts: tuple[str, ...] = ()
    interpolated: tuple[str, ...] = ()
    witness: str | None = None
    sizes: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()

    @property
    def total(self) -> sympy.Expr:
        """The sum over all kinds."""
        return sympy.expand(sum(self.by_kind.values(), sympy.Integer(0)))

    def as_record(self) -> dict[str, Any]:
        """Return plain texts for JSON."""
        return vars(self) | {"by_kind": {kind: str(polynomial) for kind, polynomial in self.by_kind.items()}}
