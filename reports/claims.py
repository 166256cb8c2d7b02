"""The papers' sentences about cost, each judged: as printed, as executed, and as counted."""

import re
from collections.abc import Mapping

import sympy

from bench.table import Column
from formulas import claims
from formulas.claims import Claim, Search
from formulas.symbols import by_letter
from reports import markdown, results


def page() -> str:
    """A summary and a paragraph for each claim."""
    found = claims.load()
    judged = [(claim, *searches(claim)) for claim in found.claims]
    rows = [
        {
            "claim": claim.name,
            "place": claim.place,
            "verdict": claims.verdict(printed, executed),
            "smallest counterexample": _point(_failing(printed, executed)),
        }
        for claim, printed, executed in judged
    ]
    columns = [Column(key, key) for key in rows[0]]
    about = (
        f"Source: {found.source}. A sentence *holds* where no point of positive integers contradicts it, *holds only "
        "as printed* where the printed equations bear it out and the exact costs do not, and *fails* where its own "
        f"equations contradict it. Searched: every point whose free letters add up to at most {claims.LARGEST_SUM}, "
        "smallest sums first."
    )
    return "\n\n".join([about, markdown.table(columns, rows), *(paragraph(*one) for one in judged)])


def searches(claim: Claim) -> tuple[Search, Search]:
    """The searches of a claim's relation as printed and as executed."""
    return claims.search(claim, claim.as_printed), claims.search(claim, claim.as_executed)


def paragraph(claim: Claim, printed: Search, executed: Search) -> str:
    """The sentence, its condition in symbols, what the search found, and the counts at the counterexample."""
    symbols = _symbols(claim)
    # a letter set to a number is no premise of the sentence
    given = ", ".join(f"${a} = {_latex(symbols[a])}$" for a, text in claim.premise.items() if not text.isdigit())
    bounds = ", ".join(f"${text.replace('>=', chr(92) + 'ge')}$" for text in claim.assume)
    lines = [
        f"**{claim.name}** ({claim.place}): {claim.sentence} *{claims.verdict(printed, executed).capitalize()}.*"
        + (f" Premise: {given}." if given else "")
        + (f" Assuming {bounds}." if bounds else ""),
        f"- As printed, {_found(claim, claim.as_printed, printed)}",
        f"- As executed, {_found(claim, claim.as_executed, executed)}",
    ]
    point = _failing(printed, executed)
    if point:
        lines.append(f"- {_confirmation(claim, point)} {claim.because}")
    return "\n".join([lines[0], "", *lines[1:]])


def _symbols(claim: Claim) -> dict[str, sympy.Symbol]:
    letters = {letter: _symbol(letter) for letter in claim.letters}
    return claims.complete(claim, letters)


def _symbol(letter: str) -> sympy.Symbol:
    return sympy.Symbol(by_letter(letter).latex, positive=True, integer=True)


def _latex(expression) -> str:
    return sympy.latex(expression)


def margin(claim: Claim, relation: str) -> sympy.Expr:
    """The right side less the left one, with the premise put in, factored."""
    left, right = (claims.value(side, _symbols(claim)) for side in claims.parts(relation)[::2])
    return sympy.factor(right - left)


def proved(claim: Claim, relation: str) -> bool:
    """Whether the relation holds at every point: letters written as their least value plus something non-negative
    leave no negative coefficient, and a positive constant where the relation is strict."""
    expression = margin(claim, relation)
    operator = claims.parts(relation)[1]
    if operator == "==":
        return expression == 0
    least = {letter: sympy.Integer(1) for letter in claim.letters}
    for text in claim.assume:
        letter, above, bound = re.fullmatch(r"(\w+) (>=?) (\w+)", text).groups()
        number = sympy.Integer(bound) if bound.isdigit() else _symbol(bound)
        least[letter] = number + (1 if above == ">" else 0)
    # bounds by other letters go in first, so that these are then shifted themselves
    for letter in sorted(claim.letters, key=lambda name: least[name].is_number):
        expression = expression.subs(_symbol(letter), least[letter] + sympy.Symbol(f"{letter}_more"))
    terms = sympy.Poly(sympy.expand(expression)).coeffs() if expression.free_symbols else [expression]
    constant = expression.subs(dict.fromkeys(expression.free_symbols, 0))
    return all(term >= 0 for term in terms) and (constant > 0 or operator == "<=")


def _found(claim: Claim, relation: str, search: Search) -> str:
    """A relation, its condition in symbols, and what the search says."""
    needed = {"<": "> 0", "<=": r"\ge 0", "==": "= 0"}[claims.parts(relation)[1]]
    condition = f"right less left is ${_latex(margin(claim, relation))}$, and the sentence needs it ${needed}$"
    if search.counterexample is None:
        sure = " It holds at every point: no coefficient is negative." if proved(claim, relation) else ""
        found = f"No counterexample among {search.tried:,} points.{sure}"
    else:
        found = f"Smallest counterexample, point {search.tried:,} of the search: {_point(search.counterexample)}."
    return f"`{relation}`: {condition}. {found}"


def _failing(printed: Search, executed: Search) -> dict[str, int] | None:
    return executed.counterexample or printed.counterexample


def _point(letters: Mapping[str, int] | None) -> str | None:
    return letters and " ".join(f"{letter}={size}" for letter, size in letters.items())


def _confirmation(claim: Claim, letters: Mapping[str, int]) -> str:
    """Both sides with every exact cost counted at ``letters``; raises where a count is not the closed form."""
    left, _, right = claims.parts(claim.as_executed)
    formula, count = ([claims.value(side, letters, named) for side in (left, right)] for named in (None, counted()))
    if formula != count:
        raise ArithmeticError(f"{claim.name} at {_point(letters)}: counted {count}, by the closed form {formula}")
    return (
        f"Counted there by PyTorch's own counter on built layers: `{left}` is {count[0]:,} and `{right}` is "
        f"{count[1]:,}, so the relation {'holds' if claims.value(claim.as_executed, letters, counted()) else 'fails'}."
    )


def counted() -> dict:
    """The exact costs of formulas/claims.py, counted on built layers."""

    def record(variant: str, letters: Mapping[str, int]):
        point = {"d_m": letters["d_m"], "T": letters["T"]}
        point |= {key: letters[key] for key in "KED"} if variant == "moa" else {"h": 1}
        return results.counted_layer(point)

    def params(variant: str, letters: Mapping[str, int]) -> int:
        # the paper counts both layers without biases
        found = record(variant, letters)
        biases = sum(entry["params"] for entry in found["ledger"] if entry["kind"] == "bias")
        return found["counted_params"] - biases

    return {
        "moa_macs": lambda **letters: record("moa", letters)["macs"],
        "mha_macs": lambda **letters: record("mha", letters)["macs"],
        "moa_params": lambda **letters: params("moa", letters),
        "mha_params": lambda **letters: params("mha", letters),
    }
