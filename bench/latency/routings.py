"""Distributions of the timed tokens over experts. Imports no torch."""

ROUTINGS = ("balanced", "paper", "zipf", "one-expert")


def expert_shares(routing: str, num_experts: int) -> list[float]:
    """Return the share of (token, slot) pairs of each expert, as far as K different experts allow (``inclusion``).

    ``paper``: falls evenly so that the largest is 5.5 times the smallest, as in Figures 3-4 (E = 32: 5.29 % and
    0.96 %). ``zipf``: proportional to 1 / rank. Otherwise equal.
    """
    if routing == "paper":
        weights = [5.5 - 4.5 * i / max(1, num_experts - 1) for i in range(num_experts)]
    elif routing == "zipf":
        weights = [1 / (i + 1) for i in range(num_experts)]
    else:
        weights = [1.0] * num_experts
    return [weight / sum(weights) for weight in weights]


def inclusion(shares: list[float], top_k: int) -> list[float]:
    """Return the probability that a token selects each expert, of sum K: K times its share, at most 1.

    K different experts leave no expert more than 1 / K of the choices: what a larger share would get beyond it goes
    to the others, in proportion.
    """
    certain: set[int] = set()
    while True:
        rest = sum(share for e, share in enumerate(shares) if e not in certain)
        left = top_k - len(certain)
        found = [1.0 if e in certain else left * share / rest for e, share in enumerate(shares)]
        more = {e for e, probability in enumerate(found) if probability >= 1} - certain
        if not more:
            return found
        certain |= more
