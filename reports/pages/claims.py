"""The papers' sentences about cost with their verdicts: at their own sizes, for all sizes, and as released."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import sympy

from headcount.formulas.published import proofs
from headcount.formulas.published.claims import Claim, Sentence
from headcount.formulas.published.costs import costs
from headcount.formulas.published.expressions import Relation
from headcount.formulas.published.proofs import Search
from headcount.formulas.symbols import symbol
from headcount.reports import claim_verdicts, counting, document
from headcount.reports.claim_verdicts import OWN, SMALLEST, format_check, format_point, format_sides, quote
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import Facts


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "claims",
        "The papers' sentences about cost",
        f"{text('claims.how', largest_sum=facts.largest_sum)} {document.link_csv(DATA)}",
        [
            Section(paper.name, [partial(sentences, paper=key)])
            for key, paper in facts.claims.papers.items()
            if paper.page == "claims"
        ],
        {DATA: data},
    )


DATA = "claims.csv"


def data(facts: Facts) -> str:
    """Return every sentence of every paper with its verdicts, as CSV."""
    rows = [{"paper": key, **row} for key in facts.claims.papers for _, row in _judged(facts, key)]
    return document.table_as_csv(rows)


def sentences(facts: Facts, paper: str) -> str:
    """Return a summary of a paper's sentences, and a paragraph for each."""
    source, judged = facts.claims.papers[paper], _judged(facts, paper)
    rows, paragraphs = [row for _, row in judged], [paragraph(sentence, facts) for sentence, _ in judged]
    counts = claim_verdicts.holding(row[OWN] for row in rows)
    empty = {key for key in rows[0] if not any(row[key] for row in rows)}
    rows = [{key: value for key, value in row.items() if key not in empty} for row in rows]
    about = f"Source: {source.source}. {source.about} At their own sizes {counts} hold.".replace("  ", " ")
    folded = ["<details><summary>each sentence, with its numbers</summary>", *paragraphs, "</details>"]
    return "\n\n".join([about, document.records(rows), *folded])


def _judged(facts: Facts, paper: str) -> list[tuple[Sentence, dict[str, Any]]]:
    """Return a paper's sentences, each with its row of the table."""
    return [
        (one, {"claim": one.name, "place": one.place, "words": one.quoted, **claim_verdicts.verdicts(one, facts)})
        for one in (*facts.claims.claims, *facts.claims.sentences)
        if one.paper == paper
    ]


def paragraph(sentence: Sentence, facts: Facts) -> str:
    """Return a sentence with its verdict, its relations in symbols, the counts, and why it does not hold."""
    verdicts = claim_verdicts.verdicts(sentence, facts)
    if isinstance(sentence, Claim):
        verdict, lines = _verdict(sentence, facts), _relation_lines(sentence, facts)
    else:
        verdict, lines = f"*At its own sizes: {verdicts[OWN] or 'no printed value'}.*", []
    lines += [format_check(check, facts) for check in sentence.checks]
    if verdicts[SMALLEST] or any(not one.holds for check in sentence.checks for one in facts.findings(check)):
        if isinstance(sentence, Claim) and claim_verdicts.is_degenerate(sentence):
            lines.append(text("claims.degenerate", bounds=_join(map(_bound, sentence.only_without))))
        lines.append(sentence.because)
    if sentence.not_reproducible:
        lines.append(f"Not reproducible: {sentence.not_reproducible}")
    return "\n".join([f"{quote(sentence)} {verdict}", "", *(f"- {line}" for line in lines if line)])


def _verdict(claim: Claim, facts: Facts) -> str:
    """Return the verdict on a claim with its premise and assumptions."""
    (symbols, *_) = proofs.cases(claim).values()
    conditions = {
        # a letter set to a number is no premise of the sentence
        "Premise: ": [f"{a} = {sympy.latex(symbols[a])}" for a, given in claim.premise.items() if given.letters],
        "Assuming ": [_bound(bound) for bound in claim.assume],
    }
    verdict = proofs.verdict(*facts.searches[claim.name]).capitalize()
    return f"*{verdict}.*" + "".join(f" {word}{_join(found)}." for word, found in conditions.items() if found)


def _relation_lines(claim: Claim, facts: Facts) -> list[str]:
    """Return a line for each relation of a claim by the name of its costs, its threshold, and its relations at the
    paper's own layers."""
    paper, (printed, executed) = facts.claims.papers[claim.paper], facts.searches[claim.name]
    forms = {paper.printed: (claim.as_printed, printed), paper.executed: (claim.as_executed, executed)}
    if claim.as_printed == claim.as_executed:
        forms = {f"{paper.printed} and {paper.executed.lower()}": (claim.as_printed, printed)}
    lines = [f"{name}, {_format_relation(claim, *form, facts)}" for name, form in forms.items()]
    lines += [_threshold(claim, facts)] if claim.threshold else []
    return [*lines, claim_verdicts.at_own_layers(claim, facts)]


def _join(formulas: Iterable[str]) -> str:
    return ", ".join(f"${formula}$" for formula in formulas)


def _bound(bound: Relation) -> str:
    sign, right = bound.operator.replace(">=", r"\ge"), bound.right
    return f"{bound.left} {sign} {sympy.latex(right.value({letter: symbol(letter) for letter in right.letters}))}"


def _format_relation(claim: Claim, relation: Relation, search: Search, facts: Facts) -> str:
    """Return a relation, its condition in symbols, the result of the search, and the count where it can be counted."""
    needed = {"<": " > 0", "<=": r" \ge 0", "==": " = 0"}[relation.operator]
    differences = proofs.differences(claim, relation).items()
    where = " and ".join(_formula(difference, case, after=needed) for case, difference in differences)
    if search.counterexample:
        found = f"Smallest counterexample, point {search.tried:,} of the search: {format_point(search.counterexample)}."
        if proofs.refuted(claim, relation):
            found += " It fails at every point: no coefficient has the other sign."
    else:
        found = f"No counterexample among {search.tried:,} points."
        if proofs.proved(claim, relation):
            why = "both sides are the same" if relation.operator == "==" else "no coefficient is negative"
            found += f" It holds at every point: {why}."
    if counting.countable(relation):
        point = search.counterexample or proofs.first_point(claim)
        found += f" Counted there: {_format_counts(claim, relation, point, facts)}"
    return f"`{relation}` holds where {where}. {found}"


def _formula(expression: sympy.Expr, case: Relation | None, before: str = "", after: str = "") -> str:
    """Return a case's formula, without a minus before a product."""
    formula = f"${before}{sympy.latex(sympy.factor_terms(sympy.cancel(expression), sign=False))}{after}$"
    return f"{formula} where ${str(case).replace('==', '=')}$" if case else formula


def _threshold(claim: Claim, facts: Facts) -> str:
    """Return where both sides of the claim's threshold are equal: the letter by the others, and the count at the
    smallest point."""
    threshold, letters = claim.threshold, proofs.equal_at(claim)
    sign = {"above": ">", "below": "<", "": "="}[threshold.holds]
    solved = proofs.threshold(claim).items()
    values = " and ".join(_formula(value, case, f"{threshold.letter} {sign} ") for case, value in solved)
    if threshold.holds:
        line = f"{threshold.says} where {values}.{claim_verdicts.threshold_at_own_layers(claim, facts)}"
    else:
        line = f"`{threshold.relation.left}` equals `{threshold.relation.right}` at {values}."
    counts = _format_counts(claim, threshold.relation, letters, facts)
    return f"{line} The smallest integers at which both are equal are {format_point(letters)}, counted there: {counts}"


def _format_counts(claim: Claim, relation: Relation, letters: Mapping[str, int], facts: Facts) -> str:
    """Return both sides counted at ``letters``. ArithmeticError where a count is not the closed form."""
    sides = (relation.left, relation.right)
    formula, count = [side.value(letters, costs()) for side in sides], [facts.cost(s, letters) for s in sides]
    if formula != count:
        raise ArithmeticError(f"{claim.name} at {format_point(letters)}: counted {count}, by the closed form {formula}")
    verdict = claim_verdicts.VERDICT[relation.holds(letters, costs())]
    return f"{format_sides(relation, letters)}, so the relation {verdict}."
