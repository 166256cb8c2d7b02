"""Whether a claim's relation holds at every point: a search over whole numbers, and proofs on polynomials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import sympy

from headcount.formulas.published.claims import Claim
from headcount.formulas.published.costs import costs
from headcount.formulas.published.expressions import Relation
from headcount.formulas.symbols import symbol

VERDICTS = ("holds", "holds only as printed", "fails")
LARGEST_SUM = 20
"""The search tries every point whose letters add up to at most this."""


@dataclass(frozen=True)
class Search:
    """``counterexample``: the smallest point, by sum and then by order, at which a relation fails, None where
    none of the ``tried`` points is one."""

    counterexample: dict[str, int] | None
    tried: int


def search(claim: Claim, relation: Relation, largest_sum: int = LARGEST_SUM) -> Search:
    """Try ``relation`` at every point of positive integers that add up to at most ``largest_sum``."""
    tried, named = 0, costs()
    for letters in _admitted(claim, largest_sum):
        tried += 1
        if not relation.holds(letters, named):
            return Search(letters, tried)
    return Search(None, tried)


def first_point(claim: Claim) -> dict[str, int]:
    """The point that a search tries first. Raises StopIteration where ``assume`` admits none."""
    return next(_admitted(claim, LARGEST_SUM))


def equal_at(claim: Claim) -> dict[str, int] | None:
    """The smallest point at which both sides of the claim's threshold are equal; None where the search finds none."""
    both = claim.threshold.relation
    return search(claim, Relation(both.left, "!=", both.right)).counterexample


def _admitted(claim: Claim, largest_sum: int) -> Iterator[dict[str, int]]:
    for point in _points(claim.letters, largest_sum):
        letters = claim.complete(point)
        if all(bound.holds(letters) for bound in claim.assume):
            yield letters


def _points(letters: Sequence[str], largest_sum: int) -> Iterator[dict[str, int]]:
    for total in range(1, largest_sum + 1):
        # cuts between 1..total: every way to write the sum in order
        for cuts in combinations(range(1, total), len(letters) - 1):
            sizes = (b - a for a, b in pairwise((0, *cuts, total)))
            yield dict(zip(letters, sizes, strict=True))


def verdict(printed: Search, executed: Search) -> str:
    """One of VERDICTS, from the searches of both relations of a claim."""
    if printed.counterexample is not None:
        return "fails"
    return "holds" if executed.counterexample is None else "holds only as printed"


def cases(claim: Claim) -> dict[Relation | None, dict[str, sympy.Expr]]:
    """The letters as symbols in each of the claim's cases, with the premise put in; one case None where it names
    none."""
    letters = {letter: symbol(letter) for letter in claim.letters}
    out = {}
    for case in claim.cases or (None,):
        fixed = {case.left.text: sympy.Integer(case.right.value({}))} if case and case.operator == "==" else {}
        out[case] = claim.complete({**letters, **fixed})
    return out


def margin(claim: Claim, relation: Relation, case: Relation | None = None) -> sympy.Expr:
    """The right side less the left one in a case of the claim, with the premise put in, factored."""
    symbols, named = cases(claim)[case], costs()
    return sympy.factor(relation.right.value(symbols, named) - relation.left.value(symbols, named))


def margins(claim: Claim, relation: Relation) -> dict[Relation | None, sympy.Expr]:
    """The margin in each case of the claim."""
    return {case: margin(claim, relation, case) for case in cases(claim)}


def threshold(claim: Claim) -> dict[Relation | None, sympy.Expr]:
    """The claim's threshold in each case: its letter by the others, where both sides are equal."""
    solved = {}
    for case, difference in margins(claim, claim.threshold.relation).items():
        (solved[case],) = sympy.solve(difference, symbol(claim.threshold.letter))
    return solved


def proved(claim: Claim, relation: Relation, bounds: Sequence[Relation] = ()) -> bool:
    """Whether the relation, ``<``, ``<=`` or ``==``, holds at every point, of those within ``bounds`` where there are
    any: letters written as their least value plus something non-negative leave no negative coefficient, and a positive
    constant where the relation is strict."""
    claim = replace(claim, assume=(*claim.assume, *bounds))
    found = margins(claim, relation)
    if relation.operator == "==":
        return all(difference == 0 for difference in found.values())
    return all(_sign(claim, difference, case, 1, relation.operator == "<") for case, difference in found.items())


def refuted(claim: Claim, relation: Relation) -> bool:
    """Whether the relation fails at every point, by the same argument on its negation."""
    signs = (1, -1) if relation.operator == "==" else (-1,)
    strict = relation.operator != "<"
    return all(
        any(_sign(claim, difference, case, sign, strict) for sign in signs)
        for case, difference in margins(claim, relation).items()
    )


def _sign(claim: Claim, difference: sympy.Expr, case: Relation | None, sign: int, strict: bool) -> bool:
    """Whether a margin times ``sign`` is at least 0, or above it where ``strict``, at every point of a case."""
    expression, least = sign * difference, _least(claim, case)
    # bounds by other letters go in first, so that these are then shifted themselves
    for letter in sorted(claim.letters, key=lambda name: least[name].is_number):
        expression = expression.subs(symbol(letter), least[letter] + sympy.Symbol(f"{letter}_more"))
    expression = sympy.expand(expression)
    terms = sympy.Poly(expression).coeffs() if expression.free_symbols else [expression]
    constant = expression.subs(dict.fromkeys(expression.free_symbols, 0))
    return all(term >= 0 for term in terms) and (constant > 0 or not strict)


def _least(claim: Claim, case: Relation | None) -> Mapping[str, sympy.Expr]:
    """The least value of each letter in a case, by others where it is bound by them."""
    least, symbols = dict.fromkeys(claim.letters, sympy.Integer(1)), cases(claim)[case]
    for bound in (*claim.assume, *([case] if case and case.operator == ">" else [])):
        above = 1 if bound.operator == ">" else 0
        least[bound.left.text] = sympy.Integer(above) + bound.right.value(symbols)
    return least
