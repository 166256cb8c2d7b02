"""The sentence of a method section that says how costs were counted, with a reference. Imports no torch."""

from collections.abc import Iterable

import headcount
from headcount.bench.case import Case, describe_input
from headcount.bench.counting.result import WRITTEN_ELEMENTWISE, Count

FORMULA = "by closed forms that equal the count of the built models"
RULE = (
    "every matrix product and convolution is counted once, attention scores as whole T x T squares under causal masks "
    "too; norms, softmax and elementwise operations are left out; 1 MAC is 2 FLOPs"
)
REFERENCE = (
    f"@software{{headcount, title = {{headcount}}, version = {{{headcount.__version__}}}, "
    f"url = {{{headcount.REPOSITORY}}}}}"
)


def citation(counted: Iterable[Case | Count]) -> str:
    """Return how the costs of closed forms and counts were found, for a paper, and BibTeX."""
    counted = list(counted)
    counts = [one for one in counted if isinstance(one, Count)]
    passes = {
        "a forward and a backward pass" if one.target and one.target.backward else "one forward pass" for one in counts
    }
    versions = dict.fromkeys(f"PyTorch {one.versions['torch']}" for one in counts if "torch" in (one.versions or {}))
    how = [f"with headcount {headcount.__version__}", *([f"and {', '.join(versions)}"] if versions else [])]
    closed = [one for one in counted if isinstance(one, Case)]
    how += [FORMULA] if closed and not counts else []
    inputs = dict.fromkeys(
        [*(describe_input(one.lengths) for one in closed), *(", ".join(one.inputs) for one in counts)]
    )
    rule = RULE
    if any(entry.kind == WRITTEN_ELEMENTWISE for one in counts for entry in one.ledger):
        rule += "; elementwise products that are summed are counted too"
    text = f"MACs of {' and '.join(sorted(passes | {'one forward pass'} if closed else passes))} were counted {' '.join(how)}"
    return f"{text}: {rule}. Inputs: {'; '.join(inputs)}. {REFERENCE}"
