"""The sentence of a method section that says how costs were counted, with a reference. Imports no torch."""

import re
from collections.abc import Iterable

import headcount
from headcount.bench.case import Case, describe_input
from headcount.bench.counting.result import Count
from headcount.formulas.ledger import WRITTEN_ELEMENTWISE

FORWARD, BACKWARD = "one forward pass", "a forward and a backward pass"
FORMULA = "by closed forms that equal the count of the built models"
RULE = (
    "every matrix product and convolution is counted once, attention scores as whole T x T squares under causal masks "
    "too; norms, softmax and elementwise operations are left out; 1 MAC is 2 FLOPs"
)
REFERENCE = f"""@misc{{headcount,
  author = {{{{headcount contributors}}}},
  title = {{{{headcount: exact MACs, FLOPs and parameters of attention layers and PyTorch models}}}},
  note = {{Version {headcount.__version__}}},
}}"""


def citation(counted: Iterable[Case | Count]) -> str:
    """Return how the costs of closed forms and counts were found, for a paper, and BibTeX below it."""
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
    return (
        f"MACs of {' and '.join(sorted(passes))} were counted with {' and '.join(tools)}{how}: {rule}. "
        f"Inputs: {'; '.join(_merged(map(_inputs_of, counted)))}."
    )


def _inputs_of(one: Case | Count) -> str:
    """Return the lengths of a closed form or the sizes of a run as text."""
    if isinstance(one, Count):
        # an input by position has no name
        return ", ".join(re.sub(r"^\d+: ", "", text) for text in one.inputs)
    lengths = dict(one.lengths)
    if "src_len" in lengths and lengths["src_len"] == lengths["tgt_len"]:
        lengths["src_len = tgt_len"] = lengths.pop("src_len")
        del lengths["tgt_len"]
    return describe_input(lengths)


def _merged(texts: Iterable[str]) -> list[str]:
    """Return texts that differ in numbers alone as one, with all values of each number: ``seq_len 128/512``."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for text in texts:
        # the numbers stand between the other parts
        parts = re.split(r"(\d+)", text)
        groups.setdefault(tuple(parts[::2]), []).append(parts)
    return [
        "".join("/".join(dict.fromkeys(column)) for column in zip(*alike, strict=True)) for alike in groups.values()
    ]
