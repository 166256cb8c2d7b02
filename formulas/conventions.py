"""Counting conventions of printed numbers: how many times each entry of a ledger is counted.

A selection is 0 or 1 for an entry; a convention is a sum of selections. Docstrings are printed.
"""

from collections.abc import Callable

from headcount.formulas.ledger import MAC_KINDS, Entry

Convention = Callable[[Entry], int]
CONVENTIONS: dict[str, Convention] = {}
"""Conventions and selections that a published table may use, by name."""


def convention(function: Convention) -> Convention:
    """Register a convention or selection under its name."""
    CONVENTIONS[function.__name__] = function
    return function


@convention
def exact(entry: Entry) -> int:
    """Every multiply-accumulate of the forward pass once."""
    return int(entry.kind in MAC_KINDS)


@convention
def fvcore(entry: Entry) -> int:
    """fvcore's own rule: every product and convolution once, 5 for each element of a norm, 1 for each averaged one."""
    return exact(entry) + 5 * int(entry.kind == "norm") + int(entry.kind == "pooling")


@convention
def projections(entry: Entry) -> int:
    """Every linear layer, the router and the vocabulary projection included; neither of attention's two T*S
    products, no convolution, no bias, no norm, no activation."""
    return int(entry.kind in ("linear", "expert_linear"))


@convention
def projections_and_ffn_biases(entry: Entry) -> int:
    """Every linear layer and the additions of the feed-forward biases; neither of attention's two T*S products."""
    return projections(entry) + ffn_biases(entry)


@convention
def equations_18_19(entry: Entry) -> int:
    """Eq. 18 and 19: the query, key, value and output projections and one of the two T*S products."""
    return int(entry.kind == "scores") + projections(entry) - router(entry)


@convention
def vocabulary_projection(entry: Entry) -> int:
    """The output projection to the vocabulary."""
    return int(entry.kind == "linear" and "V" in entry.dims)


def vocabulary(entry: Entry) -> int:
    """The embedding of tokens and the output projection to the vocabulary."""
    return int("V" in entry.dims or "V" in entry.weight or entry.path == "embedding")


@convention
def router(entry: Entry) -> int:
    """The routers' linear layers."""
    return int(entry.kind == "linear" and "router" in entry.path.split("."))


@convention
def ffn_biases(entry: Entry) -> int:
    """The additions of the feed-forward biases."""
    return int(entry.kind == "bias" and "feed_forward" in entry.path)


@convention
def norms(entry: Entry) -> int:
    """The elements that norms normalise."""
    return int(entry.kind == "norm")


@convention
def frozen(entry: Entry) -> int:
    """The parameters that training leaves alone."""
    return int(not entry.trainable)


def attention(entry: Entry) -> int:
    """Everything of an attention module without the norm before it."""
    return int(any(part.endswith("_attn") for part in entry.path.split(".")))


def feed_forward(entry: Entry) -> int:
    """Everything of a feed-forward block without the norm before it."""
    return int("feed_forward" in entry.path.split("."))


def statement(convention) -> str:
    """Return the docstring of a convention on one line."""
    return " ".join((convention.__doc__ or "").split())
