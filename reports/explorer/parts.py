"""The parts of a model by which the explorer sums its entries."""

from headcount.formulas import conventions
from headcount.formulas.ledger import Entry

_LINEAR = {
    conventions.router: "routers",
    conventions.vocabulary_projection: "vocabulary projection",
    conventions.attention: "attention projections",
    conventions.feed_forward: "feed-forward layers",
}
_LABELS = {"scores": "first T S product (scores)", "values": "second T S product (values)", "bias": "other biases"}
"""Labels of kinds that are not the kind itself."""


def part(entry: Entry) -> str:
    """Return the label of an entry's part."""
    if conventions.projections(entry):
        return next((label for is_part, label in _LINEAR.items() if is_part(entry)), "other linear layers")
    if conventions.ffn_biases(entry):
        return "feed-forward biases"
    return _LABELS.get(entry.kind, entry.kind.replace("_", " "))
