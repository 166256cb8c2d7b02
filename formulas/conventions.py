"""Counting conventions of printed numbers: how many times each entry of a ledger is counted.

``conventions.toml`` holds them as rules, whose format it describes. A selection is 0 or 1 for an entry; a convention
of a forward pass is a sum of selections; a rule of training also says what runs again.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib.resources import files

from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size, divide, flops
from headcount.formulas.mha import causal_half


@dataclass(frozen=True)
class Term:
    """The entries that one term of a rule counts, and how; ``conventions.toml`` describes each field."""

    kinds: tuple[str, ...] = ()
    path: str = ""
    letter: str = ""
    trainable: bool | None = None
    times: int | Fraction = 1
    of: str = "size"
    recompute: int = 0

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset(kind for name in self.kinds for kind in (MAC_KINDS if name == "macs" else (name,)))

    def fits(self, entry: Entry) -> bool:
        """Return whether the term counts ``entry``."""
        return (
            (not self.kinds or entry.kind in self._kinds)
            and (not self.letter or self.letter in entry.dims or self.letter in entry.weight)
            and self.trainable in (None, entry.trainable)
            and re.search(self.path, entry.role or entry.path) is not None
        )


@dataclass(frozen=True)
class Rule:
    """A named rule; called with an entry, it returns how many times one forward pass counts it."""

    name: str
    about: str
    terms: tuple[Term, ...]
    backward: int = 0
    pairs: str = "whole"
    source: str = ""

    def term(self, entry: Entry) -> Term | None:
        """Return the first term that fits ``entry``; None where the rule does not count it."""
        return next((term for term in self.terms if term.fits(entry)), None)

    def __call__(self, entry: Entry) -> int | Fraction:
        term = self.term(entry)
        return term.times if term else 0

    @property
    def without_recomputation(self) -> "Rule":
        """The rule of model FLOPs, where the rule itself counts those of the hardware."""
        return replace(self, terms=tuple(replace(term, recompute=0) for term in self.terms))

    def macs(self, entry: Entry, tokens: Size) -> Size:
        """Return what the rule counts of ``entry`` in a step over ``tokens`` tokens, in multiply-accumulates.

        Training computes no gradient of a frozen weight. Its product still passes one on to its input.
        """
        term = self.term(entry)
        if term is None:
            return 0
        amount = self._size(entry) if term.of == "size" else tokens * getattr(entry, term.of)
        backward = self.backward if entry.trainable or not self.backward else self.backward - 1
        return term.times * (1 + backward + term.recompute) * amount

    def _size(self, entry: Entry) -> Size:
        """Return the size of ``entry``, with the part of the T x T pairs that the rule counts."""
        if self.pairs == "whole" or not {"T", "S"} <= entry.dims.keys():
            return entry.size
        return divide(entry.size, 2) if self.pairs == "half" else sum(e.size for e in causal_half(Ledger((entry,))))

    def flops(self, entries: Iterable[Entry], tokens: Size) -> Size:
        """Return the FLOPs that the rule counts of ``entries`` in a step over ``tokens`` tokens."""
        return divide(flops(sum(self.macs(entry, tokens) for entry in entries)), 1)


def _rule(name: str, *, terms: list[dict], **fields) -> Rule:
    made = []
    for term in terms:
        exact = divide(Fraction(term.get("times", 1)), 1)
        made.append(Term(**{**term, "times": exact, "kinds": tuple(term.get("kinds", ()))}))
    return Rule(name, terms=tuple(made), **fields)


_DATA = tomllib.loads(files("headcount.formulas").joinpath("conventions.toml").read_text("utf-8"))
CONVENTIONS: dict[str, Rule] = {name: _rule(name, **fields) for name, fields in _DATA.items()}
"""Conventions, selections and rules that a published table may use, by name."""
TRAINING = tuple(name for name, rule in CONVENTIONS.items() if rule.backward)
"""Names of the rules of a training step."""

exact = CONVENTIONS["exact"]
projections = CONVENTIONS["projections"]
equations_18_19 = CONVENTIONS["equations_18_19"]
vocabulary_projection = CONVENTIONS["vocabulary_projection"]
vocabulary = CONVENTIONS["vocabulary"]
router = CONVENTIONS["router"]
ffn_biases = CONVENTIONS["ffn_biases"]
attention = CONVENTIONS["attention"]
feed_forward = CONVENTIONS["feed_forward"]
