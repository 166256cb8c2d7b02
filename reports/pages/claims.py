"""The papers' sentences about cost, each with its verdicts: at their own sizes, for all sizes, as released, counted."""

from collections.abc import Iterable, Mapping
from functools import partial

import sympy

from headcount.formulas.published import proofs
from headcount.formulas.published.claims import Claim, Paper, Sentence
from headcount.formulas.published.costs import costs
from headcount.formulas.published.expressions import Expression, Relation
from headcount.formulas.published.proofs import Search
from headcount.formulas.symbols import symbol
from headcount.reports import claim_verdicts, counting, document
from headcount.reports.claim_verdicts import point, quoted
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts

ORDER = 40


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "claims",
        "The papers' sentences about cost",
        lambda facts: text("claims.how", largest_sum=facts.largest_sum),
        [Section(paper.name, [partial(sentences, paper=key)]) for key, paper in facts.claims.papers.items()],
        calls=calls,
    )


def calls(facts: Facts) -> Iterable[tuple]:
    """Return the searches, and both sides of every relation of the page, counted at its point."""
    for claim in facts.claims.claims:
        yield counting.searches, claim.name, facts.largest_sum
    for claim in facts.claims.claims:
        for relation, letters in _places(claim, *facts.searches[claim.name]):
            if counting.countable(relation):
                for side in (relation.left, relation.right):
                    yield counting.cost, side.text, tuple(letters.items())


def sentences(facts: Facts, paper: str) -> str:
    """Return a summary of a paper's sentences, and a paragraph for each."""
    found, searches = facts.claims, facts.searches
    claims, others = ([s for s in kind if s.paper == paper] for kind in (found.claims, found.sentences))
    rows = [_row(sentence, facts) for sentence in (*claims, *others)]
    about = f"Source: {found.papers[paper].source}. {found.papers[paper].about}"
    return "\n\n".join(
        [
            about.strip(),
            document.records(rows),
            *(paragraph(claim, *searches[claim.name], facts) for claim in claims),
            *(of_rows(sentence, facts) for sentence in others),
        ]
    )


def _row(sentence: Sentence, facts: Facts) -> dict[str, str | None]:
    three = claim_verdicts.verdicts(sentence, facts)
    return {
        "claim": sentence.name,
        "place": sentence.place,
        "words": sentence.quoted,
        "own sizes": three.own,
        "all sizes": three.everywhere,
        "smallest counterexample": three.smallest,
        "as released": three.released,
    }


def of_rows(sentence: Sentence, facts: Facts) -> str:
    """Return a sentence about the paper's own rows, with each comparison."""
    three = claim_verdicts.verdicts(sentence, facts)
    failing = any(not found.holds for check in sentence.checks for found in facts.findings(check))
    lines = [*claim_verdicts.checked(sentence, facts), *([sentence.because] if failing or three.smallest else [])]
    own = f" *At its own sizes: {three.own or 'no printed value'}.*"
    return "\n".join([f"{quoted(sentence)}{own}", "", *(f"- {line}" for line in lines if line)])


def _counterexample(printed: Search, executed: Search) -> Mapping[str, int] | None:
    return executed.counterexample or printed.counterexample


def _places(claim: Claim, printed: Search, executed: Search) -> list[tuple[Relation, Mapping[str, int]]]:
    """Return the relations of a claim's paragraph, each with the point at which it is counted."""
    places = [(claim.as_printed, _place(claim, printed)), (claim.as_executed, _place(claim, executed))]
    return places + ([(claim.threshold.relation, proofs.equal_at(claim))] if claim.threshold else [])


def _place(claim: Claim, search: Search) -> Mapping[str, int]:
    return search.counterexample or proofs.first_point(claim)


def paragraph(claim: Claim, printed: Search, executed: Search, facts: Facts) -> str:
    """Return the sentence, its condition in symbols, what the search found, and the counts there."""
    paper, (symbols, *_) = facts.claims.papers[claim.paper], proofs.cases(claim).values()
    # a letter set to a number is no premise of the sentence
    premise = [f"{a} = {sympy.latex(symbols[a])}" for a, given in claim.premise.items() if given.letters]
    bounds = [_bound(bound) for bound in claim.assume]
    shown = [f"{letter} = {own}" for letter, own in claim.shown.items()]
    lines = [
        f"{quoted(claim)} *{proofs.verdict(printed, executed).capitalize()}.*"
        + (f" Premise: {_listed(premise)}." if premise else "")
        + (f" Assuming {_listed(bounds)}." if bounds else "")
        + (f" Written with {_listed(shown)}." if shown else ""),
        *(f"- {form}, {_found(claim, *one, facts)}" for form, one in _forms(claim, paper, printed, executed).items()),
        *([f"- {_threshold(claim, facts)}"] if claim.threshold else []),
    ]
    lines += [f"- {line}" for line in (*claim_verdicts.of_layers(claim, facts), *claim_verdicts.checked(claim, facts))]
    if _counterexample(printed, executed):
        bounds = [_bound(bound) for bound in claim.only_without]
        if claim_verdicts.degenerate(claim):
            lines.append(f"- It fails at degenerate sizes alone: with {_listed(bounds)} no coefficient is negative.")
        lines.append(f"- {claim.because}")
    return "\n".join([lines[0], "", *lines[1:]])


def _forms(claim: Claim, paper: Paper, printed: Search, executed: Search) -> dict[str, tuple[Relation, Search]]:
    """Return the relations with their searches, by the form that they are of; one where both are the same."""
    if claim.as_printed == claim.as_executed:
        return {f"{paper.printed} and {paper.executed.lower()}": (claim.as_printed, printed)}
    return {paper.printed: (claim.as_printed, printed), paper.executed: (claim.as_executed, executed)}


def _listed(formulas: list[str]) -> str:
    return ", ".join(f"${formula}$" for formula in formulas)


def _bound(bound: Relation) -> str:
    sign = bound.operator.replace(">=", r"\ge")
    return f"{bound.left} {sign} {sympy.latex(bound.right.value(_symbols(bound.right)))}"


def _symbols(expression: Expression) -> dict[str, sympy.Symbol]:
    return {letter: symbol(letter) for letter in expression.letters}


def _found(claim: Claim, relation: Relation, search: Search, facts: Facts) -> str:
    """Return a relation, its condition in symbols, what the search says, and the count where it can be counted."""
    needed = {"<": " > 0", "<=": r" \ge 0", "==": " = 0"}[relation.operator]
    differences = [
        _shown(claim, difference, case, after=needed)
        for case, difference in proofs.differences(claim, relation).items()
    ]
    condition = f"holds where {' and '.join(differences)}"
    if search.counterexample is None:
        why = "both sides are the same" if relation.operator == "==" else "no coefficient is negative"
        sure = f" It holds at every point: {why}." if proofs.proved(claim, relation) else ""
        found = f"No counterexample among {search.tried:,} points.{sure}"
    else:
        never = (
            " It fails at every point: no coefficient has the other sign." if proofs.refuted(claim, relation) else ""
        )
        found = f"Smallest counterexample, point {search.tried:,} of the search: {point(search.counterexample)}.{never}"
    return f"`{relation}` {condition}. {found}{_confirmation(claim, relation, _place(claim, search), facts)}"


def _shown(claim: Claim, expression: sympy.Expr, case: Relation | None, before: str = "", after: str = "") -> str:
    """Return a case's formula in the letters that the claim wants it shown in."""
    for letter, own in claim.shown.items():
        others = _symbols(own) | proofs.cases(claim)[case]
        expression = expression.subs(symbol(letter), own.value(others))
    formula = f"${before}{sympy.latex(_positive(sympy.factor(expression)))}{after}$"
    return f"{formula} where ${str(case).replace('==', '=')}$" if case else formula


def _positive(expression: sympy.Expr) -> sympy.Expr:
    """Return the same product without a minus before it where a sum in it, a divisor first, can take the sign."""
    number, product = expression.as_coeff_Mul()
    factors = sorted(sympy.Mul.make_args(product), key=lambda factor: factor.as_base_exp()[1].is_positive)
    for i, factor in enumerate(factors):
        base, exponent = factor.as_base_exp()
        mixed = base.is_Add and any(term.could_extract_minus_sign() for term in base.args)
        if number.is_negative and mixed and exponent.is_odd:
            number, factors[i] = -number, (-base) ** exponent
    return sympy.Mul(number, *factors)


def _threshold(claim: Claim, facts: Facts) -> str:
    """Return where both sides of the claim's threshold are equal: the letter by the others, and the count at a
    point."""
    letter, relation = claim.threshold.letter, claim.threshold.relation
    sign = {"above": ">", "below": "<", "": "="}[claim.threshold.holds]
    solved = proofs.threshold(claim).items()
    values = " and ".join(_shown(claim, value, case, f"{letter} {sign} ") for case, value in solved)
    if claim.threshold.holds:
        words = claim_verdicts.threshold_in_words(claim, facts)
        return f"{claim.threshold.says} where {values}.{words}{_equal(claim, facts)}"
    return f"`{relation.left}` equals `{relation.right}` at {values}.{_equal(claim, facts)}"


def _equal(claim: Claim, facts: Facts) -> str:
    """Return the smallest point at which both sides of the threshold are equal, and the count there."""
    letters = proofs.equal_at(claim)
    counts = _confirmation(claim, claim.threshold.relation, letters, facts).removeprefix(" Counted there: ")
    return f" The smallest integers at which both are equal are {point(letters)}, counted there: {counts}"


def _confirmation(claim: Claim, relation: Relation, letters: Mapping[str, int], facts: Facts) -> str:
    """Return both sides counted at ``letters``, "" for costs that are not a layer's; raises where a count is not the
    closed form."""
    if not counting.countable(relation):
        return ""
    sides = (relation.left, relation.right)
    formula, count = [side.value(letters, costs()) for side in sides], [facts.cost(s, letters) for s in sides]
    if formula != count:
        raise ArithmeticError(f"{claim.name} at {point(letters)}: counted {count}, by the closed form {formula}")
    return (
        f" Counted there: `{relation.left}` is {count[0]:,} and `{relation.right}` is {count[1]:,}, so the relation "
        f"{'holds' if relation.holds(letters, costs()) else 'fails'}."
    )
