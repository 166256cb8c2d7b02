"""The sentence of a method section that says how costs were counted, with a reference. Imports no torch."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import headcount
from headcount.bench.case import Case, describe_input
from headcount.bench.counting.result import WRITTEN_ELEMENTWISE, Count

FORWARD, BACKWARD = "one forward pass", "a forward and a backward pass"
FORMULA = "by closed forms that equal the count of the built models"
RULE = (
    "every matrix product and convolution is counted once, attention scores as whole T x T squares under causal masks "
    "too; norms, softmax and elementwise operations are left out; 1 MAC is 2 FLOPs"
)
REFERENCE = (
    "@software{headcount, author = {{headcount contributors}}, title = {{headcount}: exact MACs, FLOPs and parameters "
    f"of attention layers and PyTorch models}}, version = {{{headcount.__version__}}}}}"
)


def citation(counted: Iterable[Case | Count]) -> str:
    """Return how the costs of closed forms and counts were found, for a paper, and BibTeX on a line of its own."""
    return f"{method(counted)}\n{REFERENCE}"


def method(counted: Iterable[Case | Count]) -> str:
    """Return how the costs of closed forms and counts were found, for the method section of a paper."""
    counted = list(counted)
    cases = [one for one in counted if isinstance(one, Case)]
    counts = [one for one in counted if isinstance(one, Count)]
    passes = {FORWARD} if cases else set()
    passes |= {BACKWARD if one.target and one.target.backward else FORWARD for one in counts}
    tools = [f"headcount {headcount.__version__}"]
    tools += dict.fromkeys(f"PyTorch {one.versions['torch']}" for one in counts if "torch" in (one.versions or {}))
    how = "" if counts else f" {FORMULA}"
    rule = RULE
    if any(entry.kind == WRITTEN_ELEMENTWISE for one in counts for entry in one.ledger):
        rule += "; elementwise products that are summed are counted too"
    inputs = _listed(one.lengths for one in cases)
    # an input by position has no name
    inputs += [", ".join(re.sub(r"^\d+: ", "", text) for text in one.inputs) for one in counts]
    return (
        f"MACs of {' and '.join(sorted(passes))} were counted with {' and '.join(tools)}{how}: {rule}. "
        f"Inputs: {'; '.join(dict.fromkeys(inputs))}."
    )


def _listed(lengths: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the inputs of each kind of model as a text with all values of each length."""
    kinds: dict[tuple[str, ...], dict[str, dict[Any, None]]] = {}
    for one in lengths:
        values = kinds.setdefault(tuple(one), {name: {} for name in one})
        for name, value in one.items():
            values[name][value] = None
    return [describe_input({name: " / ".join(map(str, own)) for name, own in kind.items()}) for kind in kinds.values()]
