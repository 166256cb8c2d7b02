"""The routing analyses of the MoA paper, load, PMI and the ablation of its losses, beside those of the stored example.

The example is a small model on a made-up task: what it shows is that the analyses work, and which way a loss moves
them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

PERCENT = {"unit": "%", "kind": "fixed", "digits": 1}
NOT_RUN = "Not stored: `python -m bench.routing --example --record` makes a record."
COEFFICIENTS = {
    (0.01, 0.0): "a", (0.0, 0.01): "z", (0.0, 0.001): "small_z", (0.01, 0.001): "both", (0.01, 0.01): "both_large"
}  # fmt: skip
"""The columns of Table 7 by the coefficients of L_a and L_z."""
CHOSEN, BIG = (0.01, 0.001), "moa-16K32E256D"


def record(facts: Facts, example: str) -> Mapping[str, Any] | None:
    """The newest stored run of an example; None where there is none."""
    found = [one for one in facts.stored("routing") if one["example"] == example]
    return max(found, key=lambda one: one["environment"]["time"], default=None)


def page(facts: Facts) -> str:
    """The three analyses; or how to make the record."""
    found = record(facts, "moa")
    if found is None:
        return NOT_RUN
    environment = found["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items() if name == "torch")
    about = (
        f"Example run: `python -m {' '.join(environment['command'])}` on {environment['device']}, {packages}, commit "
        f"{(environment['commit'] or 'none')[:10]}, {environment['time']}: a small model of {_experts(found)} experts "
        "on a made-up task with classes of tokens. The paper's figures are of translation models."
    )
    return "\n\n".join([about, _load(facts, found), _pmi(facts, found), _ablation(facts, found)])


def _experts(found: Mapping[str, Any]) -> int:
    return len(found["runs"][0]["tokens_per_expert"])


def _percent(counts: Sequence[int]) -> list[float]:
    return sorted((100 * count / sum(counts) for count in counts), reverse=True)


def _load(facts: Facts, found: Mapping[str, Any]) -> str:
    """Figures 3 and 4 beside the chosen run."""
    printed = facts.data["moa-figures34"]
    chosen = next(run for run in found["runs"] if _pair(run) == CHOSEN)
    shares = _percent(chosen["tokens_per_expert"])
    own = (
        f"{shares[0]:.1f} %",
        f"{shares[len(shares) * 3 // 4]:.1f}-{shares[len(shares) // 4]:.1f} %",
        f"{shares[-1]:.1f} %",
    )
    experts = facts.config(BIG).attention.num_experts
    balanced = {"share": "balanced, 1 / E", "printed": f"{100 / experts:.1f} %", "own": f"{100 / len(shares):.1f} %"}
    rows = [{**entry, "own": text} for entry, text in zip(printed.entries, own, strict=True)] + [balanced]
    columns = [
        Column("share", "share of"),
        Column("printed", f"{printed.place}, E = {experts}"),
        Column("own", "example run"),
    ]
    return f"**Load.** {printed.about} Most of the example's: the middle half.\n\n{markdown.table(columns, rows)}"


def _pmi(facts: Facts, found: Mapping[str, Any]) -> str:
    """Table 4 beside the example's experts."""
    printed = facts.data["moa-table4"]
    columns = [Column(column.key, column.head) for column in printed.columns]
    own = [
        {"expert": one["expert"], "class": one["class"], "tokens": one["tokens"]}
        for one in sorted(found["experts"], key=lambda one: one["expert"])
    ]
    heads = [Column("expert", "expert"), Column("class", "class"), Column("tokens", "tokens (PMI)")]
    return (
        f"**PMI.** {printed.place}: {printed.about}\n\n{markdown.table(columns, printed.entries)}\n\nThe example's "
        f"tokens are named by their class:\n\n{markdown.table(heads, own)}"
    )


def _pair(run: Mapping[str, Any]) -> tuple[float, float]:
    return run["coefficients"]["L_a"], run["coefficients"]["L_z"]


def _ablation(facts: Facts, found: Mapping[str, Any]) -> str:
    """Table 7 beside the example's runs."""
    printed = facts.data["moa-table7"]
    heads = {column.key: column.head for column in printed.columns}
    rows = []
    for run in found["runs"]:
        key, shares = COEFFICIENTS[_pair(run)], _percent(run["tokens_per_expert"])
        rows.append(
            {
                "coefficients": heads[key],
                **{entry["model"]: entry[key] for entry in printed.entries},
                "loss": run["loss"],
                "largest": shares[0],
                "smallest": shares[-1],
                **run["auxiliary_losses"],
            }
        )
    first = Column("coefficients", "coefficients")
    bleu = [Column(entry["model"], f"BLEU, {entry['model']}", align="right") for entry in printed.entries]
    own = [
        Column("loss", "task loss", kind="fixed", digits=3),
        Column("largest", "largest share", **PERCENT),
        Column("smallest", "smallest share", **PERCENT),
        Column("L_a", "L_a", kind="fixed", digits=3),
        Column("L_z", "L_z", kind="fixed", digits=3),
    ]
    return (
        f"**Ablation of L_a and L_z.** {printed.place}:\n\n{markdown.table([first, *bleu], rows)}\n\n"
        f"The example's task loss, the shares of its experts and its losses:\n\n{markdown.table([first, *own], rows)}"
    )
