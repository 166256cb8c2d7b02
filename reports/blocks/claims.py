"""Blocks of the papers' sentences about cost, with verdicts at their own sizes, for all sizes, and as released."""

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import groupby
from typing import Any

import sympy

from headcount.formulas.published import proofs
from headcount.formulas.published.claims import Check, Claim, Rows, Sentence
from headcount.formulas.published.costs import COSTS
from headcount.formulas.published.expressions import Relation
from headcount.formulas.published.proofs import Search
from headcount.formulas.published.sentences import EXECUTED, PRINTED, Finding, results_by_length
from headcount.formulas.symbols import format_sizes, symbol
from headcount.reports import counting, document
from headcount.reports.document import File, link
from headcount.reports.facts import Facts

VERDICT = {True: "holds", False: "fails"}


def largest_sum(facts: Facts) -> int:
    """Return the largest sum of the free letters of a point in the search."""
    return facts.largest_sum


def source(facts: Facts, paper: str) -> str:
    """Return the authors, the title and the place of a paper."""
    return facts.claims.papers[paper].source


def _data(facts: Facts) -> str:
    """Return every sentence of every paper with its verdicts, as CSV."""
    rows = [{"paper": key, **row} for key in facts.claims.papers for _, row in _judged(facts, key)]
    return document.table_as_csv(rows)


claims_csv = File("claims.csv", _data)


def by_paper(facts: Facts) -> str:
    """Return the number of each paper's sentences that hold, and those that fail at the paper's own sizes."""
    rows, failing = [], []
    for key, paper in facts.claims.papers.items():
        judged = _judged(facts, key)
        counts = {f"hold, {name}": holding(row[name] for _, row in judged) for name in (OWN, ALL, RELEASED)}
        rows.append({"paper": link(paper.name, paper.page, paper.name), "sentences": len(judged), **counts})
        failing += [f"- {_words(one)} ({one.place})" for one, row in judged if row[OWN] == VERDICT[False]]
    table = document.records(rows, dict.fromkeys([*rows[0]][2:], {"align": "right"}))
    return "\n".join([table, "", "Fail at the sizes of their own tables:", "", *failing])


def at_own_sizes(facts: Facts) -> dict[str, str]:
    """Return how many sentences of each paper hold at its own sizes, by the paper's name."""
    return {
        paper.name: holding(row[OWN] for _, row in _judged(facts, key)) for key, paper in facts.claims.papers.items()
    }


def outcomes(facts: Facts, paper: str) -> str:
    """Return how many sentences of a paper hold, hold for some rows, fail and cannot be tried at its own sizes."""
    found = [row[OWN] for _, row in _judged(facts, paper)]
    holds, fails = (found.count(VERDICT[is_true]) for is_true in (True, False))
    partly = sum(str(verdict).startswith(f"{VERDICT[True]} in ") for verdict in found)
    parts = {"true": holds, "true for some rows": partly, "false": fails}
    parts["not tried"] = len(found) - sum(parts.values())
    counts = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
    return f"of {len(found)} statements {counts}"


def sentences(facts: Facts, paper: str) -> str:
    """Return a table of a paper's sentences with their verdicts, and a paragraph for each."""
    source, judged = facts.claims.papers[paper], _judged(facts, paper)
    rows = [
        {"sentence": _words(one), "place": one.place} | {name: row[name] for name in (OWN, ALL, RELEASED)}
        for one, row in judged
    ]
    counts = holding(row[OWN] for row in rows)
    empty = {key for key in rows[0] if not any(row[key] for row in rows)}
    rows = [{key: value for key, value in row.items() if key not in empty} for row in rows]
    about = f"Source: {source.source}. {source.about} At their own sizes {counts} that were tried hold.".replace(
        "  ", " "
    )
    paragraphs = [paragraph(sentence, facts) for sentence, _ in judged]
    folded = ["<details><summary>each sentence, with its numbers</summary>", *paragraphs, "</details>"]
    return "\n\n".join([about, document.records(rows), *folded])


def _words(sentence: Sentence) -> str:
    """Return a sentence, in quotation marks where it has the paper's words."""
    return f'"{sentence.sentence}"' if sentence.quoted == "verbatim" else sentence.sentence


@cache
def _judged(facts: Facts, paper: str) -> list[tuple[Sentence, dict[str, Any]]]:
    """Return a paper's sentences, each with its row of the file."""
    return [
        (one, {"claim": one.name, "place": one.place, "words": one.quoted, **verdicts(one, facts)})
        for one in (*facts.claims.claims, *facts.claims.sentences)
        if one.paper == paper
    ]


OWN, ALL, SMALLEST, RELEASED = "own sizes", "all sizes", "smallest counterexample", "as released"
"""Verdicts on a sentence, and the smallest sizes at which it fails."""


def verdicts(sentence: Sentence, facts: Facts) -> dict[str, str | None]:
    """Return the verdicts by their names, None where there is nothing to judge.

    Own sizes: what is printed, or what the equations need, at the tables' rows or layers. As released: what the
    authors' code executes there.
    """
    if isinstance(sentence, Claim):
        printed, executed = facts.searches[sentence.name]
        everywhere = proofs.verdict(printed, executed)
        if executed.counterexample and is_degenerate(sentence):
            everywhere += ", at degenerate sizes alone"
        smallest = format_sizes(executed.counterexample or printed.counterexample or {}) or None
    else:
        everywhere, smallest = _for_all_lengths(sentence, facts)
    own, released = (_at_own_sizes(sentence, form, facts) for form in (PRINTED, EXECUTED))
    return {OWN: own, ALL: everywhere, SMALLEST: smallest, RELEASED: released}


def is_degenerate(claim: Claim) -> bool:
    """Return whether the executed relation is proved wherever the claim's ``only_without`` holds."""
    return bool(claim.only_without) and proofs.proved(claim, claim.as_executed, claim.only_without)


def _at_own_sizes(sentence: Sentence, form: str, facts: Facts) -> str | None:
    found = [one.holds for check in sentence.checks for one in facts.findings(check) if one.form == form]
    if not found and isinstance(sentence, Claim):
        number, points = facts.own_layers(sentence)
        if number and not points:
            return "no layer meets the premise"
        relation = sentence.as_printed if form == PRINTED else sentence.as_executed
        found = [relation.holds(point, COSTS) for point in points.values()]
    if not found:
        return "not tested here" if sentence.not_tested else None
    if all(found):
        return "holds"
    return f"holds in {sum(found)} of {len(found)}" if any(found) else "fails"


def _for_all_lengths(sentence: Sentence, facts: Facts) -> tuple[str | None, str | None]:
    """Return the verdict for all lengths of the input, and the first at which a row fails."""
    rows = [check for check in sentence.checks if isinstance(check, Rows) and check.of == "macs"]
    failing = {
        check.label: min(lengths)
        for check in rows
        if (
            lengths := [
                length for length, holds in results_by_length(check, facts.compared(check)).items() if not holds
            ]
        )
    }
    if not failing:
        return ("holds at every length" if rows else None), None
    first = min(failing.values())
    always = list(failing.values()) == [1] * len(rows)
    some = f"fails at some length for {len(failing)} of {len(rows)}"
    labels = ", ".join(label for label, length in failing.items() if length == first)
    return "fails at every length" if always else some, f"T={first} ({labels})"


def format_checks(checks: Iterable[Check], facts: Facts) -> list[str]:
    """Return the lines of checks, consecutive ones of one relation as a list below it."""
    lines = []
    for head, group in groupby((format_check(check, facts) for check in checks), lambda found: found[0]):
        found = [line for _, line in group]
        lines += (
            [f"{head}{found[0]}"] if len(found) == 1 else ["\n  - ".join([head.rstrip(), *found])] if head else found
        )
    return lines


def format_check(check: Check, facts: Facts) -> tuple[str, str]:
    """Return the relation of a check, and its numbers, their ratio, the verdicts, and the lengths at which they change.

    The relation is empty where each verdict has its own.
    """
    findings = facts.findings(check)
    if not isinstance(check, Rows):
        return "", "; ".join(f"{one.label}, {_format_relations(one)}: {VERDICT[one.holds]}" for one in findings) + "."
    parts, (sign, word) = [], ("/", "over") if check.of in ("macs", "params") else ("-", "minus")
    for one in findings:
        numbers = [f"{int(size):,}" if size.denominator == 1 else f"{float(size):g}" for size in one.values.values()]
        compared = f" {sign} ".join(numbers)
        if len(numbers) > 1:
            first, second = one.values.values()
            compared += f" = {float(first / second):.3f}" if sign == "/" else f" = {float(first - second):g}"
        parts.append(f"{one.form} {compared}, {VERDICT[one.holds]}")
    head, line = f"`{check.relation}`, {f' {word} '.join(check.rows)}: ", f"{check.label}, {'; '.join(parts)}."
    if check.of != "macs":
        return head, line
    at_one, *changes = results_by_length(check, facts.compared(check)).items()
    later = ", ".join(f"it {VERDICT[holds]} from T = {length:,} on" for length, holds in changes)
    lengths = f"T = 1; {later}." if later else "every T."
    return head, f"{line} Executed with S = T it {VERDICT[at_one[1]]} at {lengths}"


def _format_relations(found: Finding) -> str:
    """Return the relations that fail with their numbers, or all relations if none fails."""
    shown = found.failing or found.relations
    letters = {letter for one in shown for letter in one.left.letters | one.right.letters}
    numbers = ", ".join(f"{letter} {float(found.values[letter]):g}" for letter in sorted(letters))
    return f"{', '.join(f'`{relation}`' for relation in shown)} with {numbers}"


def format_sides(relation: Relation, letters: Mapping[str, int]) -> str:
    """Return both sides of a relation with their values at ``letters``."""
    left, right = (f"`{side}` is {side.value(letters, COSTS):,}" for side in (relation.left, relation.right))
    return f"{left} and {right}"


def at_own_layers(claim: Claim, facts: Facts) -> str:
    """Return the results of a claim's relations at the paper's own layers, with both sides at the largest; "" for a
    claim without such layers."""
    (number, points), tables = facts.own_layers(claim), ", ".join(claim.own)
    if not points:
        return f"Of the {number} kinds of layer in {tables} none meets the premise." if number else ""
    holding = {
        relation: sum(relation.holds(point, COSTS) for point in points.values())
        for relation in (claim.as_printed, claim.as_executed)
    }
    held = ", ".join(f"`{relation}` holds at {count}" for relation, count in holding.items())
    name, largest = max(points.items(), key=lambda pair: claim.as_executed.right.value(pair[1], COSTS))
    met = f"The premise is met by {len(points)} of the {number} kinds of layer in {tables}: {held}."
    return f"{met} At {name} ({format_sizes(largest)}) {format_sides(claim.as_executed, largest)}."


def threshold_at_own_layers(claim: Claim, facts: Facts) -> str:
    """Return the bound above or below which the relation holds at the paper's own layers."""
    letter, above, solved = claim.threshold.letter, claim.threshold.holds == "above", proofs.threshold(claim)
    points, bounds = facts.own_layers(claim)[1].values(), []
    for point in points:
        case = next(case for case in solved if case is None or case.holds(point))
        exact = solved[case].subs({symbol(name): size for name, size in point.items()})
        # the first integer above, or the last one below
        bounds.append(int(exact // 1) + 1 if above else int(-(-exact // 1)) - 1)
    # sizes start at 1
    side = f"from {letter} >= {max(1, *bounds)} on" if above else f"up to {letter} = {min(bounds)}"
    least, most = (choose(point[letter] for point in points) for choose in (min, max))
    sizes = f"{least}" if least == most else f"{least} to {most}"
    return f" At the paper's own layers {claim.threshold.says} {side}; theirs have {letter} = {sizes}."


def quote(sentence: Sentence) -> str:
    """Return a sentence with its place and how it is read."""
    read_as = f" Judged as: {sentence.read_as}." if sentence.read_as else ""
    return f"**{_words(sentence)}** ({sentence.place}){read_as}"


def holding(verdicts: Iterable[str | None]) -> str:
    """Return how many of the verdicts on a sentence are that it holds."""
    judged = [verdict for verdict in verdicts if verdict and not verdict.startswith(("no layer", "not tested here"))]
    holding = sum(verdict in ("holds", "holds at every length") for verdict in judged)
    return f"{holding} of {len(judged)}"


def paragraph(sentence: Sentence, facts: Facts) -> str:
    """Return a sentence with its verdict, its relations in symbols, the counts, and why it does not hold."""
    judged = verdicts(sentence, facts)
    if isinstance(sentence, Claim):
        verdict, lines = _verdict(sentence, facts), _relation_lines(sentence, facts)
    else:
        verdict, lines = f"*At its own sizes: {judged[OWN] or 'no printed value'}.*", []
    lines += format_checks(sentence.checks, facts)
    if judged[SMALLEST] or any(not one.holds for check in sentence.checks for one in facts.findings(check)):
        if isinstance(sentence, Claim) and is_degenerate(sentence):
            bounds = _join(map(_bound, sentence.only_without))
            lines.append(f"It fails at degenerate sizes alone: with {bounds} no coefficient is negative.")
        lines.append(sentence.because)
    if sentence.not_tested:
        lines.append(f"Not tested here: {sentence.not_tested}")
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
    return [*lines, at_own_layers(claim, facts)]


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
        found = f"Smallest counterexample, point {search.tried:,} of the search: {format_sizes(search.counterexample)}."
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
        line = f"{threshold.says} where {values}.{threshold_at_own_layers(claim, facts)}"
    else:
        line = f"`{threshold.relation.left}` equals `{threshold.relation.right}` at {values}."
    counts = _format_counts(claim, threshold.relation, letters, facts)
    return f"{line} The smallest integers at which both are equal are {format_sizes(letters)}, counted there: {counts}"


def _format_counts(claim: Claim, relation: Relation, letters: Mapping[str, int], facts: Facts) -> str:
    """Return both sides counted at ``letters``. ArithmeticError where a count is not the closed form."""
    sides = (relation.left, relation.right)
    formula, count = [side.value(letters, COSTS) for side in sides], [facts.cost(s, letters) for s in sides]
    if formula != count:
        raise ArithmeticError(f"{claim.name} at {format_sizes(letters)}: counted {count}, by the closed form {formula}")
    verdict = VERDICT[relation.holds(letters, COSTS)]
    return f"{format_sides(relation, letters)}, so the relation {verdict}."
