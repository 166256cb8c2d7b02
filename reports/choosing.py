"""Derived polynomials, the comparison of Table 1's big models, and searches under a budget, each run now."""

from headcount.bench.table import Column, Section
from headcount.reports import markdown
from headcount.reports.facts import Facts

DERIVED = (
    ("MoA layer", "Eq. 18", "--preset moa-8K8E128D --vars T,S,K,E,D,d_model"),
    ("MHA layer", "Eq. 19", "--preset transformer-base --vars T,S,h,d_h,d_model"),
    ("ideal MoH layer", None, "--preset moh-llm-s-75 --set form=ideal --vars T,h,s,r,d_h,g,d_model"),
    ("feed-forward block", None, "--preset transformer-base --part feed-forward --vars T,d_model,d_ff"),
)
COMPARED = ("moa-16K32E256D", "transformer-big")
BUDGETS = (
    (
        "--like transformer-big --attention moa --params 250M --limit 8",
        "MoA models whose exact MACs are within 2 % of the big Transformer's, around its own widths, with a bound on "
        "parameters. On the front: more parameters and active parameters are better, fewer MACs and cache bytes; rows "
        "that differ by less than 5 % in everything are one.",
    ),
    (
        "--like llm-s --attention moh --match macs kv-bytes --range g=12 d_h=64",
        "MoH models with the MACs and the key/value cache of the MoH paper's small dense language model: each token "
        "uses as many heads as that has, chosen from as many or more; key/value heads stay as they are, and with them "
        "the cache. Counted is the ideal MoH, which computes no head for a token that does not use it, but its keys "
        "and values.",
    ),
)


def derived(facts: Facts) -> str:
    """The closed forms that running the modules gives, each equal to the one of formulas/."""
    rows, notes = [], []
    for what, equation, argv in DERIVED:
        section = facts.derivation(argv)
        latex = {row.values["kind"]: f"${row.records[0]['latex']}$" for row in section.rows}
        total = latex.pop("total")
        kinds = ", ".join(f"{kind} {polynomial}" for kind, polynomial in latex.items())
        equal = "yes" if section.facts["equals_closed_form"] else "no"
        rows.append({"what": what, "printed": equation, "total": total, "kinds": kinds, "equal": equal})
        notes.append([section.facts["method"]])
    columns = [
        Column("what", "derived by running"),
        Column("printed", "printed as"),
        Column("total", "multiply-accumulates"),
        Column("kinds", "by kind"),
        Column("equal", "the exact form above"),
    ]
    return markdown.table(columns, rows, notes)


def comparison(facts: Facts) -> str:
    """Where Table 1's big models differ, and where their ranking turns."""
    a, b = COMPARED
    sections = facts.comparison(a, b)
    about = (
        f"A is {a}, B is {b}; `python -m bench.macs --compare {a} {b}`. The rule is Table 1's. T is every input "
        "length at once; K and E of a model are changed alone. Each change of the ranking is solved from the closed "
        "forms and, where the models can be built, counted at both integers."
    )
    block = sections["compare-block"]
    forms = ("rule", "exact")
    return "\n\n".join([about, *(_blocks(block, form) for form in forms), markdown.rows_of(sections["compare-turns"])])


def _blocks(section: Section, form: str) -> str:
    """The columns of one form, what each model has of a block and how one model becomes the other."""
    keys = [column.key for column in section.table.columns if column.key.endswith(f"_{form}")]
    return markdown.rows_of(section, "block", *keys, below=form == "exact")


def budget(facts: Facts) -> str:
    """A search for MoA and one for MoH, each around a dense model."""
    parts = []
    for argv, about in BUDGETS:
        found = facts.budget(argv)
        shown, same = _telling(found)
        parts += [f"{about}{same}", markdown.rows_of(found, *shown, code="preset")]
    return "\n\n".join(parts)


def _telling(section: Section) -> tuple[list[str], str]:
    """The keys of columns in which rows differ, and the other columns in words."""
    columns, first = section.table.columns, section.rows[0].values
    differ = {c.key: len({row.values[c.key] for row in section.rows}) > 1 for c in columns}
    same = [f"{' '.join(c.head_lines)} = {c.text(first[c.key])}" for c in columns if not differ[c.key]]
    return [key for key, does in differ.items() if does], f" In all rows {', '.join(same)}." if same else ""
