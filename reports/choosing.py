"""Derived polynomials, the comparison of Table 1's big models, and searches under a budget, each run now."""

import json
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown, results

DERIVED = (
    ("MoA layer", "Eq. 18", "T,S,K,E,D,d_model", ("--preset", "moa-8K8E128D")),
    ("MHA layer", "Eq. 19", "T,S,h,d_h,d_model", ("--preset", "transformer-base")),
    ("ideal MoH layer", None, "T,h,s,r,d_h,g,d_model", ("--preset", "moh-llm-s-75", "--set", "form=ideal")),
    ("feed-forward block", None, "T,d_model,d_ff", ("--preset", "transformer-base", "--part", "feed-forward")),
)
COMPARED = ("moa-16K32E256D", "transformer-big")
COSTS = {"macs": "MACs", "params": "parameters", "active_params": "active", "kv_bytes": "cache bytes"}
# No records: times differ from machine to machine, and these tables must not.
NO_TIMES = ("--records", "none")
BUDGETS = (
    (
        ("--like", "transformer-big", "--attention", "moa", "--params", "250M", "--limit", "8"),
        "MoA models whose exact MACs are within 2 % of the big Transformer's, around its own widths, with a bound on "
        "parameters. On the front: more parameters and active parameters are better, fewer MACs and cache bytes; rows "
        "that differ by less than 5 % in everything are one.",
    ),
    (
        ("--like", "llm-s", "--attention", "moh", "--match", "macs", "kv-bytes", "--range", "g=12", "d_h=64"),
        "MoH models with the MACs and the key/value cache of the MoH paper's small dense language model: each token "
        "uses as many heads as that has, chosen from as many or more; key/value heads stay as they are, and with them "
        "the cache. Counted is the ideal MoH, which computes no head for a token that does not use it, but its keys "
        "and values.",
    ),
)


def _tables(*argv: str) -> dict[str, dict[str, Any]]:
    found = json.loads(results.command(*argv, "--format", "json"))["tables"]
    return {table["name"]: table for table in found}


def derived() -> str:
    """The closed forms that running the modules gives, each equal to the one of formulas/."""
    rows, notes = [], []
    for what, equation, names, subject in DERIVED:
        argv = ("bench.derive", *subject, "--vars", names)
        table = _tables(*argv)["derive"]
        total = next(row for row in table["rows"] if row["kind"] == "total")
        kinds = ", ".join(f"{row['kind']} ${row['latex']}$" for row in table["rows"] if row["kind"] != "total")
        equal = "yes" if table["equals_closed_form"] else "no"
        rows.append({"what": what, "printed": equation, "total": f"${total['latex']}$", "kinds": kinds, "equal": equal})
        notes.append([f"`python -m {' '.join(argv)}`: {table['method']}"])
    columns = [
        Column("what", "derived by running"),
        Column("printed", "printed as"),
        Column("total", "multiply-accumulates"),
        Column("kinds", "by kind"),
        Column("equal", "the exact form above"),
    ]
    return markdown.table(columns, rows, notes)


def comparison() -> str:
    """Where Table 1's big models differ, and where their ranking turns."""
    a, b = COMPARED
    tables = _tables("bench.macs", "--compare", a, b, "--check")
    blocks, turns = tables["compare-block"]["rows"], tables["compare-turns"]["rows"]
    numbers = [
        Column(f"{key}_{account}", f"{head}, {account}", kind="int", sign=key == "difference")
        for account in ("rule", "exact")
        for key, head in (("a", a), ("b", b), ("difference", "A less B"), ("sum", "from B to A"))
    ]
    letters = [
        Column("account", "account"),
        Column("letter", "size"),
        Column("difference", "A less B"),
        Column("below", "last at", kind="int"),
        Column("at_below", "A less B there", kind="int", sign=True),
        Column("above", "first at", kind="int"),
        Column("at_above", "A less B there", kind="int", sign=True),
        Column("counted", "counted there"),
    ]
    about = (
        f"A is {a}, B is {b}; `python -m bench.macs --compare {a} {b}`. The rule is Table 1's. T is every input "
        "length at once; K and E of a model are changed alone. Each change of the ranking is solved from the closed "
        "forms and, where the models can be built, counted at both integers."
    )
    return "\n\n".join(
        [about, markdown.table([Column("block", "block"), *numbers], blocks), markdown.table(letters, turns)]
    )


def budget() -> str:
    """A search for MoA and one for MoH, each around a dense model."""
    return "\n\n".join(_budget(argv, about) for argv, about in BUDGETS)


def _budget(argv: tuple[str, ...], about: str) -> str:
    rows = _tables("bench.budget", *argv, *NO_TIMES)["budget"]["rows"]
    letters = [key for key in rows[0] if key not in (*COSTS, "ms", "base", "set", "input", "preset")]
    columns = [
        *(Column(letter, letter, kind="int") for letter in letters),
        *(Column(key, head, kind="int") for key, head in COSTS.items()),
        Column("preset", "as a preset"),
    ]
    table = markdown.table(columns, [{**row, "preset": "`" + row["preset"] + "`"} for row in rows])
    return f"`python -m bench.budget {' '.join(argv)}`: {about}\n\n{table}"
