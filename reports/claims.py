"""The papers' sentences about cost, each judged: as printed, as executed, and as counted."""

import re
from collections.abc import Mapping

import sympy

from headcount.bench.table import Column
from headcount.formulas.published import claims
from headcount.formulas.published.claims import Claim, Paper, Search
from headcount.formulas.symbols import by_letter
from headcount.reports import counted, markdown
from headcount.reports.printed import judged_ratios


def page() -> str:
    """A summary and a paragraph for each claim."""
    found = claims.load()
    judged = [(claim, *searches(claim)) for claim in found.claims]
    counted.count_for(place for one in judged for place in _counted_places(*one))
    rows = [
        {
            "claim": claim.name,
            "paper": {"moa": "MoA", "moh": "MoH"}[claim.paper],
            "place": claim.place,
            "verdict": claims.verdict(printed, executed),
            "smallest counterexample": _point(executed.counterexample or printed.counterexample),
        }
        for claim, printed, executed in judged
    ]
    rows += [
        {"claim": ratio.name, "paper": "MoA", "place": ratio.place, "verdict": verdict, "smallest counterexample": None}
        for ratio, _, verdict in judged_ratios()
    ]
    columns = [Column(key, key) for key in rows[0]]
    about = (
        f"Sources: {'; '.join(paper.source for paper in found.papers.values())}. A sentence *holds* where no point of "
        "positive integers contradicts it, *holds only as printed* where the printed equations bear it out and the "
        "exact costs do not, and *fails* where its own equations contradict it. Searched: every point whose free "
        f"letters add up to at most {claims.LARGEST_SUM}, smallest sums first; a sentence about two printed rows has "
        "none. Counts are of built layers, by PyTorch's own counter. "
        f"{' '.join(paper.about for paper in found.papers.values() if paper.about)}"
    )
    return "\n\n".join([about, markdown.table(columns, rows), *(paragraph(*one) for one in judged)])


def searches(claim: Claim) -> tuple[Search, Search]:
    """The searches of a claim's relation as printed and as executed."""
    return claims.search(claim, claim.as_printed), claims.search(claim, claim.as_executed)


def _counted_places(claim: Claim, printed: Search, executed: Search) -> list[tuple[str, Mapping[str, int]]]:
    """The relations of a claim's paragraph, each with the point at which it is counted."""
    places = [(claim.as_printed, _place(claim, printed)), (claim.as_executed, _place(claim, executed))]
    return places + ([(claim.threshold["relation"], _equal_at(claim))] if claim.threshold else [])


def _place(claim: Claim, search: Search) -> Mapping[str, int]:
    return search.counterexample or claims.first_point(claim)


def paragraph(claim: Claim, printed: Search, executed: Search) -> str:
    """The sentence, its condition in symbols, what the search found, and the counts there."""
    paper, (symbols, *_) = claims.load().papers[claim.paper], _cases(claim).values()
    # a letter set to a number is no premise of the sentence
    given = [f"{_symbol(a)} = {sympy.latex(symbols[a])}" for a, text in claim.premise.items() if not text.isdigit()]
    bounds = [_bound(text) for text in claim.assume]
    shown = [f"{letter} = {text}" for letter, text in claim.shown.items()]
    lines = [
        f"**{claim.name}** ({claim.place}): {claim.sentence} *{claims.verdict(printed, executed).capitalize()}.*"
        + (f" Premise: {_listed(given)}." if given else "")
        + (f" Assuming {_listed(bounds)}." if bounds else "")
        + (f" Written with {_listed(shown)}." if shown else ""),
        *(f"- {form}, {_found(claim, *one)}" for form, one in _forms(claim, paper, printed, executed).items()),
        *([f"- {_threshold(claim)}"] if claim.threshold else []),
    ]
    if printed.counterexample or executed.counterexample:
        lines.append(f"- {claim.because}")
    return "\n".join([lines[0], "", *lines[1:]])


def _forms(claim: Claim, paper: Paper, printed: Search, executed: Search) -> dict[str, tuple[str, Search]]:
    """The relations with their searches, by the form that they are of; one where both are the same."""
    if claim.as_printed == claim.as_executed:
        return {f"{paper.printed} and {paper.executed.lower()}": (claim.as_printed, printed)}
    return {paper.printed: (claim.as_printed, printed), paper.executed: (claim.as_executed, executed)}


def _listed(formulas: list[str]) -> str:
    return ", ".join(f"${formula}$" for formula in formulas)


def _bound(text: str) -> str:
    left, operator, right = text.partition(" >= ") if " >= " in text else text.partition(" > ")
    letters = {letter: _symbol(letter) for letter in re.findall(r"[A-Za-z_]+", text)}
    sign = operator.strip().replace(">=", r"\ge")
    return f"{letters[left]} {sign} {sympy.latex(claims.value(right, letters, {}))}"


def _cases(claim: Claim) -> dict[str, dict[str, sympy.Expr]]:
    """The letters as symbols in each of the claim's cases, with the premise put in; one case "" where it names none."""
    letters = {letter: _symbol(letter) for letter in claim.letters}
    out = {}
    for case in claim.cases or ("",):
        letter, operator, number = case.split() if case else ("", "", "")
        fixed = {letter: sympy.Integer(number)} if operator == "==" else {}
        out[case] = claims.complete(claim, {**letters, **fixed})
    return out


def _symbol(letter: str) -> sympy.Symbol:
    return sympy.Symbol(by_letter(letter).latex, positive=True, integer=True)


def margin(claim: Claim, relation: str, case: str = "") -> sympy.Expr:
    """The right side less the left one in a case of the claim, with the premise put in, factored."""
    symbols = _cases(claim)[case]
    left, right = (claims.value(side, symbols) for side in claims.parts(relation)[::2])
    return sympy.factor(right - left)


def proved(claim: Claim, relation: str) -> bool:
    """Whether the relation holds at every point: letters written as their least value plus something non-negative
    leave no negative coefficient, and a positive constant where the relation is strict."""
    operator = claims.parts(relation)[1]
    if operator == "==":
        return all(margin(claim, relation, case) == 0 for case in _cases(claim))
    return all(_sign(claim, relation, case, 1, operator == "<") for case in _cases(claim))


def refuted(claim: Claim, relation: str) -> bool:
    """Whether the relation fails at every point, by the same argument on its negation."""
    operator = claims.parts(relation)[1]
    signs = (1, -1) if operator == "==" else (-1,)
    strict = operator != "<"
    return all(any(_sign(claim, relation, case, sign, strict) for sign in signs) for case in _cases(claim))


def _sign(claim: Claim, relation: str, case: str, sign: int, strict: bool) -> bool:
    """Whether the margin times ``sign`` is at least 0, or above it where ``strict``, at every point of a case."""
    expression = sign * margin(claim, relation, case)
    least = {letter: sympy.Integer(1) for letter in claim.letters}
    for text in (*claim.assume, *([case] if " > " in case else [])):
        letter, above, bound = re.fullmatch(r"(\w+) (>=?) (.+)", text).groups()
        least[letter] = claims.value(bound, _cases(claim)[case], {}) + (1 if above == ">" else 0)
    # bounds by other letters go in first, so that these are then shifted themselves
    for letter in sorted(claim.letters, key=lambda name: sympy.sympify(least[name]).is_number):
        expression = expression.subs(_symbol(letter), least[letter] + sympy.Symbol(f"{letter}_more"))
    expression = sympy.expand(expression)
    terms = sympy.Poly(expression).coeffs() if expression.free_symbols else [expression]
    constant = expression.subs(dict.fromkeys(expression.free_symbols, 0))
    return all(term >= 0 for term in terms) and (constant > 0 or not strict)


def _found(claim: Claim, relation: str, search: Search) -> str:
    """A relation, its condition in symbols, what the search says, and the count where it can be counted."""
    needed = {"<": "> 0", "<=": r"\ge 0", "==": "= 0"}[claims.parts(relation)[1]]
    margins = [_shown(claim, margin(claim, relation, case), case) for case in _cases(claim)]
    condition = f"right less left is {' and '.join(margins)}, and the sentence needs it ${needed}$"
    if search.counterexample is None:
        why = "both sides are the same" if claims.parts(relation)[1] == "==" else "no coefficient is negative"
        sure = f" It holds at every point: {why}." if proved(claim, relation) else ""
        found = f"No counterexample among {search.tried:,} points.{sure}"
    else:
        never = " It fails at every point: no coefficient has the other sign." if refuted(claim, relation) else ""
        found = (
            f"Smallest counterexample, point {search.tried:,} of the search: {_point(search.counterexample)}.{never}"
        )
    return f"`{relation}`: {condition}. {found}{_confirmation(claim, relation, _place(claim, search))}"


def _shown(claim: Claim, expression: sympy.Expr, case: str, before: str = "") -> str:
    """A case's formula in the letters that the claim wants it shown in."""
    symbols = _cases(claim)[case]
    for letter, text in claim.shown.items():
        others = {name: _symbol(name) for name in re.findall(r"[A-Za-z_]+", text)} | symbols
        expression = expression.subs(_symbol(letter), claims.value(text, others, {}))
    formula = f"${before}{sympy.latex(_positive(sympy.factor(expression)))}$"
    if not case:
        return formula
    letter, operator, number = case.split()
    return f"{formula} where ${_symbol(letter)} {operator.replace('==', '=')} {number}$"


def _positive(expression: sympy.Expr) -> sympy.Expr:
    """The same product without a minus before it where a sum in it, a divisor first, can take the sign."""
    number, product = expression.as_coeff_Mul()
    factors = sorted(sympy.Mul.make_args(product), key=lambda factor: factor.as_base_exp()[1].is_positive)
    for i, factor in enumerate(factors):
        base, exponent = factor.as_base_exp()
        mixed = base.is_Add and any(term.could_extract_minus_sign() for term in base.args)
        if number.is_negative and mixed and exponent.is_odd:
            number, factors[i] = -number, (-base) ** exponent
    return sympy.Mul(number, *factors)


def _point(letters: Mapping[str, int] | None) -> str | None:
    return letters and " ".join(f"{letter}={size}" for letter, size in letters.items())


def _threshold(claim: Claim) -> str:
    """Where both sides of the claim's threshold are equal: the letter by the others, and the count at a point."""
    letter, relation = claim.threshold["letter"], claim.threshold["relation"]
    left, _, right = claims.parts(relation)
    values = []
    for case in _cases(claim):
        (solution,) = sympy.solve(margin(claim, relation, case), _symbol(letter))
        values.append(_shown(claim, solution, case, f"{_symbol(letter)} = "))
    point = _equal_at(claim)
    counts = _confirmation(claim, relation, point).removeprefix(" Counted there: ")
    return (
        f"`{left}` equals `{right}` at {' and '.join(values)}. The smallest such integers are "
        f"{_point(point)}, counted there: {counts}"
    )


def _equal_at(claim: Claim) -> dict[str, int] | None:
    """The smallest point at which both sides of the claim's threshold are equal."""
    left, _, right = claims.parts(claim.threshold["relation"])
    return claims.search(claim, f"{left} != {right}").counterexample


def _confirmation(claim: Claim, relation: str, letters: Mapping[str, int]) -> str:
    """Both sides counted at ``letters``, "" for costs that are not a layer's; raises where a count is not the closed
    form."""
    left, _, right = claims.parts(relation)
    if not counted.countable(relation):
        return ""
    named = counted.costs()
    formula, count = ([claims.value(side, letters, costs) for side in (left, right)] for costs in (None, named))
    if formula != count:
        raise ArithmeticError(f"{claim.name} at {_point(letters)}: counted {count}, by the closed form {formula}")
    return (
        f" Counted there: `{left}` is {count[0]:,} and `{right}` is {count[1]:,}, so the relation "
        f"{'holds' if claims.value(relation, letters, named) else 'fails'}."
    )
