"""Blocks of what the report finds, a sentence each, for the overview and README."""

from headcount.formulas.published.verdicts import VERDICTS
from headcount.reports import latency
from headcount.reports.blocks import claims
from headcount.reports.blocks.time import interval
from headcount.reports.facts import Facts

TIMED = (
    (
        "moa-8K8E128D", "a MoA layer (8 of 8 experts, 128 wide)", 2048, "overhead",
        "dense multi-query attention of the same sizes",
    ),
    ("moh-32x64-50", "a MoH layer (16 of 32 heads)", 8192, "to_mha", "multi-head attention"),
)  # fmt: skip
"""Layers with their words, lengths, ratios of their records, and the dense layers that these compare with."""
LARGEST = "Qwen3-30B-A3B"
"""The model of the stored readings whose errors are the largest."""
RECORD = "readings.json"


def verdicts(facts: Facts) -> str:
    """Return how many rows of the published tables have each verdict."""
    every = [verdict for name in facts.tables for verdict, _ in facts.verdicts(name).values()]
    counted = ", ".join(f"{every.count(status)} {status}" for status in VERDICTS if status in every)
    return f"{len(every)} rows of {len(facts.tables)} tables: {counted}"


def sentences(facts: Facts) -> str:
    """Return how many sentences of each paper about its cost hold at its own sizes."""
    (moa, of_moa), (moh, of_moh), *_ = claims.at_own_sizes(facts).items()
    return f"{of_moa} sentences of the {moa} paper and {of_moh} of the {moh} paper about cost hold at their own sizes"


def tools(facts: Facts) -> str:
    """Return how far each tool's count of a mixture of experts is off, with the versions."""
    exact, *found = facts.stored_json(RECORD)
    macs = exact["macs"][LARGEST]
    errors = {one["tool"]: 100 * (one["macs"][LARGEST] - macs) / macs for one in found if LARGEST in one["macs"]}
    least, most = (choose(errors, key=lambda tool: abs(errors[tool])) for choose in (min, max))
    wrong = sum(error != 0 for error in errors.values())
    ends = " to ".join(f"{errors[tool]:+.1f} % ({tool})" for tool in (least, most))
    return f"{wrong} of {len(errors)} tools miscount {LARGEST}, by {ends}, with torch {exact['torch']}."


def measured_ratios(facts: Facts) -> list[str]:
    """Return the ratios of TIMED on each GPU that has measured them."""
    found = []
    for device, rows in latency.results(facts, list)["cuda"].items():
        fastest = {(r.layer, r.seq_len): r for r in latency.headline_rows(rows) if r.which == "forward"}
        own = [
            f"{words} takes {interval(getattr(fastest[name, T], ratio))} times as long as {dense} at {T:,} tokens"
            for name, words, T, ratio, dense in TIMED
            if (name, T) in fastest
        ]
        found.append(f"On an {device}, in bfloat16, the forward pass of {'; that of '.join(own)}")
    return found


def ratios(facts: Facts) -> str:
    """Return the measured ratios."""
    return " ".join(f"{one}." for one in measured_ratios(facts))


def times(facts: Facts) -> str:
    """Return the measured ratios with the page that has all of them."""
    return " ".join(f"{one}: [all times](time.md)." for one in measured_ratios(facts)) or "Not measured."
