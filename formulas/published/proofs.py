"""Search for counterexamples of a claim over integers, and proofs and refutations on polynomials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import sympy

from headcount.formulas.published.claims import Claim, Threshold
from headcount.formulas.published.costs import COSTS
from headcount.formulas.published.expressions import Relation
from headcount.formulas.symbols import symbol

LARGEST_SUM = 20
"""Largest sum of the letters of a point that the search tries."""


@dataclass(frozen=True)
class Search:
    """``counterexample``: the smallest point, by sum and then by order, at which a relation fails; None if it holds at
    all ``tried`` points."""

    counterexample: dict[str, int] | None
    tried: int


def search(claim: Claim, relation: Relation, largest_sum: int = LARGEST_SUM) -> Search:
    """Test ``relation`` at every point of positive integers with a sum of at most ``largest_sum``."""
    tried = 0
    for tried, letters in enumerate(_admitted(claim, largest_sum), 1):
        if not relation.holds(letters, COSTS):
            return Search(letters, tried)
    return Search(None, tried)


def first_point(claim: Claim) -> dict[str, int]:
    """Return the first point of a search. Raises StopIteration if ``assume`` admits none."""
    return next(_admitted(claim, LARGEST_SUM))


def equal_at(claim: Claim) -> dict[str, int] | None:
    """Return the smallest point at which both sides of the threshold are equal; None if the search finds none."""
    both = _threshold_of(claim).relation
    return search(claim, Relation(both.left, "!=", both.right)).counterexample


def _threshold_of(claim: Claim) -> Threshold:
    if claim.threshold is None:
        raise ValueError(f"{claim.name} has no threshold")
    return claim.threshold


def _admitted(claim: Claim, largest_sum: int) -> Iterator[dict[str, int]]:
    for point in _points(claim.letters, largest_sum):
        letters = claim.complete(point)
        if all(bound.holds(letters) for bound in claim.assume):
            yield letters


def _points(letters: Sequence[str], largest_sum: int) -> Iterator[dict[str, int]]:
    for total in range(1, largest_sum + 1):
        # cuts between 1..total: every ordered way to write the sum
        for cuts in combinations(range(1, total), len(letters) - 1):
            sizes = (b - a for a, b in pairwise((0, *cuts, total)))
            yield dict(zip(letters, sizes, strict=True))


def verdict(printed: Search, executed: Search) -> str:
    """Return ``holds``, ``holds only as printed`` or ``fails``, from the searches of both relations of a claim."""
    if printed.counterexample is not None:
        return "fails"
    return "holds" if executed.counterexample is None else "holds only as printed"


def cases(claim: Claim) -> dict[Relation | None, dict[str, sympy.Expr]]:
    """Return the letters as symbols in each case of the claim, with the premise substituted; the only case is None if
    the claim has no cases."""
    letters = {letter: symbol(letter) for letter in claim.letters}
    out = {}
    for case in claim.cases or (None,):
        fixed = {case.left.text: sympy.Integer(case.right.value({}))} if case and case.operator == "==" else {}
        out[case] = claim.complete({**letters, **fixed})
    return out


def differences(claim: Claim, relation: Relation) -> dict[Relation | None, sympy.Expr]:
    """Return the right side minus the left side in each case of the claim, factored."""
    return {
        case: sympy.factor(relation.right.value(symbols, COSTS) - relation.left.value(symbols, COSTS))
        for case, symbols in cases(claim).items()
    }


def threshold(claim: Claim) -> dict[Relation | None, sympy.Expr]:
    """Return the claim's threshold in each case, as a function of the other letters."""
    solved, own = {}, _threshold_of(claim)
    for case, difference in differences(claim, own.relation).items():
        (solved[case],) = sympy.solve(difference, symbol(own.letter))
    return solved


def proved(claim: Claim, relation: Relation, bounds: Sequence[Relation] = ()) -> bool:
    """Return whether a proof is found that the relation (<, <=, ==) holds at every point within ``bounds``.

    With each letter written as its least value plus a non-negative rest, the difference must have no negative
    coefficient, and a positive constant if the relation is strict.
    """
    claim = replace(claim, assume=(*claim.assume, *bounds))
    found = differences(claim, relation)
    if relation.operator == "==":
        return all(difference == 0 for difference in found.values())
    return all(_sign(claim, difference, case, 1, relation.operator == "<") for case, difference in found.items())


def refuted(claim: Claim, relation: Relation) -> bool:
    """Return whether a proof is found that the relation fails at every point."""
    signs = (1, -1) if relation.operator == "==" else (-1,)
    strict = relation.operator != "<"
    return all(
        any(_sign(claim, difference, case, sign, strict) for sign in signs)
        for case, difference in differences(claim, relation).items()
    )


def _sign(claim: Claim, difference: sympy.Expr, case: Relation | None, sign: int, strict: bool) -> bool:
    """Return whether a difference times ``sign`` is >= 0, or > 0 if ``strict``, at every point of a case."""
    expression, least = sign * difference, _least(claim, case)
    # substitute bounds by other letters first, because these letters are shifted too
    for letter in sorted(claim.letters, key=lambda name: least[name].is_number):
        expression = expression.subs(symbol(letter), least[letter] + sympy.Symbol(f"{letter}_more"))
    expression = sympy.expand(expression)
    terms = sympy.Poly(expression).coeffs() if expression.free_symbols else [expression]
    constant = expression.subs(dict.fromkeys(expression.free_symbols, 0))
    return all(term >= 0 for term in terms) and (constant > 0 or not strict)


def _least(claim: Claim, case: Relation | None) -> Mapping[str, sympy.Expr]:
    """Return the least value of each letter in a case, as a function of letters that bound it."""
    least, symbols = dict.fromkeys(claim.letters, sympy.Integer(1)), cases(claim)[case]
    for bound in (*claim.assume, *([case] if case and case.operator == ">" else [])):
        above = 1 if bound.operator == ">" else 0
        least[bound.left.text] = sympy.Integer(above) + bound.right.value(symbols)
    return least
