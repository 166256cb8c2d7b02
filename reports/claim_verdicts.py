"""The verdicts on a sentence: at its paper's own sizes, for all sizes, and as released; with their numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from headcount.formulas.published import proofs, sentences
from headcount.formulas.published.claims import Claim, Rows, Sentence
from headcount.formulas.published.costs import costs
from headcount.formulas.published.sentences import EXECUTED, PRINTED, Finding
from headcount.formulas.symbols import symbol
from headcount.reports.document import text
from headcount.reports.facts import Facts

VERDICT = {True: "holds", False: "fails"}


@dataclass(frozen=True)
class ClaimVerdicts:
    """The verdicts, each None where there is nothing to judge, and the smallest sizes at which a sentence fails."""

    own: str | None
    everywhere: str | None
    smallest: str | None
    released: str | None


def verdicts(sentence: Sentence, facts: Facts) -> ClaimVerdicts:
    """Return the verdicts. Own sizes: what is printed, or what the equations need, at the tables' rows or layers. As
    released: what the authors' code executes there."""
    if isinstance(sentence, Claim):
        printed, executed = facts.searches[sentence.name]
        everywhere = proofs.verdict(printed, executed)
        if executed.counterexample and degenerate(sentence):
            everywhere += ", at degenerate sizes alone"
        smallest = point(executed.counterexample or printed.counterexample)
    else:
        everywhere, smallest = _lengths(sentence, facts)
    own, released = (_counted(sentence, form, facts) for form in (PRINTED, EXECUTED))
    return ClaimVerdicts(own, everywhere, smallest, released)


def point(letters: Mapping[str, int] | None) -> str | None:
    """Return sizes as text: ``T=1 K=2``."""
    return letters and " ".join(f"{letter}={size}" for letter, size in letters.items())


def degenerate(claim: Claim) -> bool:
    """Whether the executed relation is proved wherever the claim's ``only_without`` holds."""
    return bool(claim.only_without) and proofs.proved(claim, claim.as_executed, claim.only_without)


def _counted(sentence: Sentence, form: str, facts: Facts) -> str | None:
    found = [one.holds for check in sentence.checks for one in facts.findings(check) if one.form == form]
    if not found and isinstance(sentence, Claim):
        layers = facts.own_layers(sentence)
        if layers.layers and not layers.points:
            return "no layer meets the premise"
        relation = sentence.as_printed if form == PRINTED else sentence.as_executed
        holding = set(layers.holding(relation))
        found = [name in holding for name in layers.points]
    return in_words(found)


def in_words(found: Sequence[bool]) -> str | None:
    """Return ``holds``, ``fails`` or ``holds in n of m``; None for an empty list."""
    if not found:
        return None
    if all(found):
        return "holds"
    return f"holds in {sum(found)} of {len(found)}" if any(found) else "fails"


def _lengths(sentence: Sentence, facts: Facts) -> tuple[str | None, str | None]:
    """Return the verdict for all lengths of the input, and the first at which a row fails."""
    rows = [check for check in sentence.checks if isinstance(check, Rows) and check.of == "macs"]
    fails = {check.label: first_failing(check, facts) for check in rows}
    lengths = [length for length in fails.values() if length]
    if not fails or not lengths:
        return ("holds at every length" if fails else None), None
    named = ", ".join(label for label, length in fails.items() if length == min(lengths))
    always = lengths.count(1) == len(fails)
    some = f"fails at some length for {len(lengths)} of {len(fails)}"
    return "fails at every length" if always else some, f"T={min(lengths)} ({named})"


def first_failing(check: Rows, facts: Facts) -> int | None:
    """Return the least length T = S at which the executed relation fails; None where there is none."""
    forms = facts.compared(check)
    lengths = [1, *sentences.crossovers(check, forms)]
    return next((length for length in lengths if not sentences.holds_at(check, forms, length)), None)


def checked(sentence: Sentence, facts: Facts) -> list[str]:
    """Return a line for each check: the numbers, their ratio, the verdicts, and the lengths at which they change."""
    return [_line(check, facts.findings(check), facts) for check in sentence.checks]


def _line(check, findings: Sequence[Finding], facts: Facts) -> str:
    if not isinstance(check, Rows):
        return "; ".join(f"{one.label}, {_relations(one)}: {VERDICT[one.holds]}" for one in findings) + "."
    parts = [f"{one.form} {_ratio(one)}, {VERDICT[one.holds]}" for one in findings]
    line = f"{check.label}, `{check.relation}`, {' over '.join(check.rows)}: {'; '.join(parts)}."
    if check.of != "macs":
        return line
    forms = facts.compared(check)
    first, *turns = [1, *sentences.crossovers(check, forms)]
    verdicts = {length: VERDICT[sentences.holds_at(check, forms, length)] for length in (first, *turns)}
    later = "".join(f"; it {verdicts[length]} from T = {length:,} on" for length in turns[:1])
    later += "".join(f", it {verdicts[length]} from T = {length:,} on" for length in turns[1:])
    return f"{line} Executed with S = T it {verdicts[first]} at " + (f"T = 1{later}." if turns else "every T.")


def _relations(found: Finding) -> str:
    """Return the relations that fail, or where none does those that hold, with their numbers."""
    shown = found.failing or found.relations
    letters = {letter for one in shown for letter in one.left.letters | one.right.letters}
    numbers = ", ".join(f"{letter} {float(found.values[letter]):g}" for letter in sorted(letters))
    return f"{', '.join(f'`{relation}`' for relation in shown)} with {numbers}"


def _ratio(found: Finding) -> str:
    first, second = found.values.values()
    return f"{int(first):,} / {int(second):,} = {float(Fraction(first, second)):.3f}"


def of_layers(claim: Claim, facts: Facts) -> list[str]:
    """Return what the claim's relations say at the paper's own layers, with both sides at the largest."""
    layers = facts.own_layers(claim)
    if not layers.layers:
        return []
    if not layers.points:
        return [text("claims.no_layers", kinds=layers.layers, tables=", ".join(claim.own))]
    shown = (claim.as_printed,) if claim.as_printed == claim.as_executed else (claim.as_printed, claim.as_executed)
    held = [f"`{relation}` holds at {len(layers.holding(relation))}" for relation in shown]
    name, largest = max(layers.points.items(), key=lambda pair: shown[-1].right.value(pair[1], costs()))
    left, right = shown[-1].left, shown[-1].right
    return [
        text(
            "claims.layers",
            kinds=layers.layers,
            tables=", ".join(claim.own),
            points=len(layers.points),
            held=", ".join(held),
            name=name,
            point=point(largest),
            left=left,
            left_value=left.value(largest, costs()),
            right=right,
            right_value=right.value(largest, costs()),
        )
    ]


def threshold_in_words(claim: Claim, facts: Facts) -> str:
    """Return the bound above or below which the relation holds at the paper's own layers; "" for another threshold."""
    threshold = claim.threshold
    if not threshold.holds:
        return ""
    letter, bounds, solved = threshold.letter, [], proofs.threshold(claim)
    for own in facts.own_layers(claim).points.values():
        case = next(c for c in proofs.cases(claim) if c is None or c.holds(own))
        exact = solved[case].subs({symbol(name): size for name, size in own.items()})
        # the first whole number above, or the last one below
        bounds.append(int(exact // 1) + 1 if threshold.holds == "above" else int(-(-exact // 1)) - 1)
    if not bounds:
        return ""
    own = [letters[letter] for letters in facts.own_layers(claim).points.values()]
    # sizes start at 1
    side = f"from {letter} >= {max(1, *bounds)} on" if threshold.holds == "above" else f"up to {letter} = {min(bounds)}"
    return text("claims.threshold", says=threshold.says, side=side, letter=letter, sizes=_span(own))


def _span(sizes: Sequence[int]) -> str:
    return f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"


def quoted(sentence: Sentence) -> str:
    """Return a sentence with its name, its place, its marking, and what is judged of it."""
    words = f'"{sentence.sentence}"' if sentence.quoted == "verbatim" else f"*read as*: {sentence.sentence}"
    return f"**{sentence.name}** ({sentence.place}), {words}" + (
        f" Judged as: {sentence.read_as}." if sentence.read_as else ""
    )
