"""Statistics of a routing in exact integers: tokens per expert, their shares, and pointwise mutual information."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from headcount.bench.variants.variant import Routed

Token = TypeVar("Token", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


@dataclass
class LayerRouting:
    """One routed layer: how often each expert was selected for each token, and the MACs that it executed.

    ``chosen[e][token]``: how often expert e was among the K of a token; ``tokens``: positions routed. ``routed``
    describes an expert (or head); ``num_shared`` shared ones precede the routed ones and take every token.
    """

    path: str
    routed: Routed
    num_experts: int
    top_k: int
    num_shared: int = 0
    tokens: int = 0
    every_token_macs: Fraction = Fraction(0)
    """MACs of an expert that takes every token."""

    def __post_init__(self) -> None:
        self.chosen: list[Counter[int]] = [Counter() for _ in range(self.num_experts)]
        self.expert_macs = [Fraction(0)] * self.num_experts

    def add(self, tokens: Sequence[int], experts: Sequence[Sequence[int]], row_macs: Fraction) -> None:
        """Add routed tokens with the experts of each; ``row_macs``: MACs of one expert for one token."""
        self.tokens += len(tokens)
        self.every_token_macs += len(tokens) * row_macs
        for token, selected in zip(tokens, experts, strict=True):
            for expert in selected:
                self.chosen[expert][token] += 1
                self.expert_macs[expert] += row_macs

    @property
    def counts(self) -> list[int]:
        """Tokens per expert; the sum is K times the tokens."""
        return [counter.total() for counter in self.chosen]

    @property
    def sorted_percent(self) -> list[float]:
        """Each expert's share of all choices in percent, the largest first."""
        return sorted(map(float, percent(self.counts)), reverse=True)


def percent(counts: Sequence[int]) -> list[Fraction]:
    """Return each count's share of the sum in percent; zeros where the sum is 0."""
    total = sum(counts) or 1
    return [Fraction(100 * count, total) for count in counts]


def top_tokens(chosen: Sequence[Counter[Token]], number: int, min_count: int = 1) -> list[list[tuple[Token, Fraction]]]:
    """Return for each expert the ``number`` tokens of highest PMI with it, the most frequent first among equals.

    PMI is p(token, expert) / (p(token) p(expert)), the MoA paper's pointwise mutual information, which is not a
    logarithm: 1 where both are independent. Tokens with fewer than ``min_count`` choices in all are left out: a rare
    token has a high PMI with any expert.
    """
    by_token: Counter[Token] = sum(chosen, Counter())
    found = []
    for counts in chosen:
        values = {
            token: Fraction(count * by_token.total(), by_token[token] * counts.total())
            for token, count in counts.items()
            if by_token[token] >= min_count
        }
        best = sorted(values.items(), key=lambda pair: (-pair[1], -counts[pair[0]], str(pair[0])))
        found.append(best[:number])
    return found


def group_tokens(chosen: Sequence[Counter[Token]], group_of: Callable[[Token], Group]) -> list[Counter[Group]]:
    """Return the same choices by group of tokens."""
    return [Counter(map(group_of, counts.elements())) for counts in chosen]
