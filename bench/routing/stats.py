"""What a routing says: shares of tokens per expert, and which tokens an expert is for. Plain integers throughout."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from headcount.bench.variants.variant import Routed


@dataclass
class LayerRouting:
    """One routed layer: how often each expert took each token, and the MACs that it executed.

    ``chosen[e][token]``: times that expert e was among the K of a token; ``tokens``: positions routed. ``routed``
    says what an expert is; ``num_shared`` of the kind stand before them and take every token.
    """

    path: str
    routed: Routed
    num_experts: int
    top_k: int
    chosen: list[Counter] = field(default_factory=list)
    num_shared: int = 0
    tokens: int = 0
    every_token_macs: Fraction = Fraction(0)
    """Multiply-accumulates of an expert that takes every token."""

    expert_macs: list[Fraction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chosen = self.chosen or [Counter() for _ in range(self.num_experts)]
        self.expert_macs = self.expert_macs or [Fraction(0)] * self.num_experts

    def add(self, tokens: Sequence[Hashable], experts: Sequence[Sequence[int]], row_macs: Fraction) -> None:
        """Routed tokens with the experts of each; ``row_macs``: MACs that one expert spends on one token."""
        self.tokens += len(tokens)
        self.every_token_macs += len(tokens) * row_macs
        for token, selected in zip(tokens, experts, strict=True):
            for expert in selected:
                self.chosen[expert][token] += 1
                self.expert_macs[expert] += row_macs

    @property
    def unit(self) -> str:
        """What a token chooses, in one word."""
        return self.routed.unit

    @property
    def counts(self) -> list[int]:
        """Tokens per expert; their sum is K times the tokens."""
        return [sum(counter.values()) for counter in self.chosen]

    @property
    def shares(self) -> list[Fraction]:
        """Each expert's part of all choices; zeros where there are none."""
        return shares(self.counts)


def shares(counts: Sequence[int]) -> list[Fraction]:
    """Parts of the sum; zeros where it is 0."""
    total = sum(counts) or 1
    return [Fraction(count, total) for count in counts]


def pmi(chosen: Sequence[Mapping[Hashable, int]]) -> list[dict[Hashable, Fraction]]:
    """p(token, expert) / (p(token) p(expert)) for every expert and each token that it took.

    The MoA paper's pointwise mutual information, which is not a logarithm: 1 where both are independent.
    """
    by_token: Counter = Counter()
    for counts in chosen:
        by_token.update(counts)
    total = by_token.total()
    return [
        {
            token: Fraction(count * total, by_token[token] * sum(counts.values()))
            for token, count in counts.items()
            if count
        }
        for counts in chosen
    ]


def top_tokens(
    chosen: Sequence[Mapping[Hashable, int]], number: int, least: int = 1
) -> list[list[tuple[Hashable, Fraction]]]:
    """For each expert the ``number`` tokens of highest PMI, the most frequent first among equals.

    Tokens that were routed to experts fewer than ``least`` times in all are left out: a rare token has a high
    PMI with whatever expert it met.
    """
    seen: Counter = Counter()
    for counts in chosen:
        seen.update(counts)
    found = []
    for counts, values in zip(chosen, pmi(chosen), strict=True):
        frequent = [(token, value) for token, value in values.items() if seen[token] >= least]
        frequent.sort(key=lambda pair: (-pair[1], -counts[pair[0]], str(pair[0])))
        found.append(frequent[:number])
    return found


def grouped(chosen: Sequence[Mapping[Hashable, int]], group_of: Mapping[Hashable, Hashable]) -> list[Counter]:
    """The same choices by group of tokens."""
    out = []
    for counts in chosen:
        together: Counter = Counter()
        for token, count in counts.items():
            together[group_of[token]] += count
        out.append(together)
    return out
