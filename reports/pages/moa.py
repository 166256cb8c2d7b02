"""The MoA paper, with JetMoE: its tables and equations, cost and quality, departures from its code, routing."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from headcount.bench.table import Column
from headcount.bench.table import Section as TableSection
from headcount.formulas import conventions, mha, moa
from headcount.formulas.backward import backward
from headcount.formulas.ledger import Ledger
from headcount.formulas.published.data import DataTable
from headcount.formulas.symbols import symbol
from headcount.reports import counting, document, papers, tables
from headcount.reports.document import Page, Section
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG, dearer_from, rated
from headcount.reports.plots import quality as quality_plot
from headcount.reports.plots import tables as tables_plot
from headcount.reports.plots import waterfall
from headcount.reports.plots.plot import files

ORDER = 20
DERIVED = (
    ("MoA layer", "Eq. 18", "--preset moa-8K8E128D --vars T,S,K,E,D,d_model"),
    ("MHA layer", "Eq. 19", "--preset transformer-base --vars T,S,h,d_h,d_model"),
    ("ideal MoH layer", None, "--preset moh-llm-s-75 --set form=ideal --vars T,h,s,r,d_h,g,d_model"),
    ("feed-forward block", None, "--preset transformer-base --part feed-forward --vars T,d_model,d_ff"),
)


def page(facts: Facts) -> Page:
    """The page."""
    return Page(
        "moa",
        "Mixture of attention heads",
        lambda facts: facts.claims.papers["moa"].source + ".",
        [
            Section(
                "Eq. 18-20 as printed and as executed",
                [equations, derived],
                [f"python -m bench.derive {argv}" for _, _, argv in DERIVED],
            ),
            Section("Printed MACs against the rule", [tables_plot.PLOT.shown], ["python -m bench.macs"]),
            *(
                Section(
                    f"{facts.tables[name].place}: {facts.tables[name].title}",
                    [partial(part, name=name) for part in (tables.counted, tables.readings, tables.parameters)],
                    [f"python -m bench.macs --table {name}"],
                )
                for name in facts.of_paper(COUNTED)
            ),
            Section("Cost against quality", [quality_plot.PLOT.shown, quality]),
            Section("Sizes and training", [sizes, training]),
            Section(
                "The big models of Table 1, side by side",
                [waterfall.PLOT.shown, comparison, savings],
                [f"python -m bench.macs --compare {BIG} {TRANSFORMER_BIG}"],
            ),
            Section(
                "JetMoE",
                [partial(tables.of_paper, paper="jetmoe")],
                ["python -m bench.macs --counter closed-form --table jetmoe"],
            ),
            Section("Departures from the authors' code", [partial(papers.departures, paper="moa")]),
            Section("Other numbers", [premises, convolutions, unlisted]),
            Section("Expert load", [routing], ["python -m bench.routing --example --record"]),
        ],
        files(tables_plot.PLOT, quality_plot.PLOT, waterfall.PLOT) | {tables.DATA: tables.data},
        calls,
    )


def calls(facts: Facts) -> Iterable[tuple]:
    """The rows of the counted tables, the slowest models first; the derivations, and the comparison."""
    rows = [(counting.rows, places) for places in facts.same_models]
    others = [(counting.derivation, argv) for _, _, argv in DERIVED]
    return [*rows[:6], (counting.audit,), *others, (counting.comparison, BIG, TRANSFORMER_BIG), *rows[6:]]


PRINTED = {
    "Eq. 18": r"C_{MoA} = k T^2 d_h + 2 (k + 1) T d_h d_m",
    "Eq. 19": r"C_{MHA} = T^2 d_m + 4 T d_m^2",
    "Eq. 20, MoA": r"M_{MoA} = (2 E + 2) d_h d_m",
    "Eq. 20, MHA": r"M_{MHA} = 4 d_m^2",
}
"""The paper's own spelling: its k is our K and its d_h our D."""

APPENDIX_B = r"\frac{M_{MoA}}{M_{MHA}} = \frac{2 (E + 1) d_h d_m}{4 d_m^2}"
"""Before the paper's next step, whose right-hand side has a factor K that nothing gives it."""


def equations(facts: Facts) -> str:
    """Printed, exact and difference as formulas; raises where they do not add up."""
    T, d_m, h, D, E, K = (symbol(letter) for letter in ("T", "d_m", "h", "D", "E", "K"))
    moa_layer = moa.layer("", B=1, T=T, S=T, d_m=d_m, E=E, K=K, D=D, bias=False)
    mha_layer = mha.layer("", B=1, T=T, S=T, d_m=d_m, h=h, d_h=d_m / h, g=h, bias=False)
    rows = [
        _macs_row("Eq. 18", moa.macs_eq18(T=T, K=K, D=D, d_m=d_m), moa_layer),
        _macs_row("Eq. 19", mha.macs_eq19(T=T, d_m=d_m), mha_layer),
        _params_row("Eq. 20, MoA", moa.params_eq20(E=E, D=D, d_m=d_m), moa_layer),
        _params_row("Eq. 20, MHA", mha.params_eq20(d_m=d_m), mha_layer),
    ]
    columns = [Column(key, key) for key in ("equation", "printed", "exact", "left out, by name")]
    return f"{document.table(columns, rows)}\n\n{_appendix_b(E, D, d_m)}"


def _appendix_b(E, D, d_m) -> str:
    """The ratio of parameters in the letter q of the paper's argument; raises where it is not Eq. 20's."""
    ratio = moa.params_ratio_appendix_b(E=E, D=D, d_m=d_m)
    if sympy.simplify(ratio - moa.params_eq20(E=E, D=D, d_m=d_m) / mha.params_eq20(d_m=d_m)) != 0:
        raise ArithmeticError("Appendix B is not the ratio of Eq. 20")
    q = sympy.Symbol("q", positive=True)
    by_share = sympy.expand(ratio.subs(D, q * d_m / E))
    if by_share.free_symbols != {E, q}:
        raise ArithmeticError("Appendix B depends on more than E and q")
    return (
        f"Appendix B divides the two lines of Eq. 20: ${APPENDIX_B}$, which with $q = E d_h / d_m$ is "
        f"${sympy.latex(by_share)}$. The paper's right-hand side has a stray factor K: no selection changes what is "
        "stored. With the router, $E d_m$ more parameters, which Eq. 20 leaves out, the ratio is "
        f"${sympy.latex(sympy.expand(sympy.simplify(by_share + E / (4 * d_m))))}$."
    )


def _macs_row(name, printed, layer):
    missing = layer.select(lambda entry: entry.macs != 0 and not conventions.equations_18_19(entry))
    left_out = missing.group(lambda entry: "router" if conventions.router(entry) else "attention-weighted values")
    return _row(name, printed, layer.macs, left_out)


def _params_row(name, printed, layer):
    routers = layer.select(conventions.router)
    left_out = routers.group(lambda entry: "router", "params")
    return _row(name, printed, layer.params, left_out)


def _row(name, printed, exact, left_out):
    if sympy.expand(printed + sum(left_out.values()) - exact) != 0:
        raise ArithmeticError(f"{name} and what it leaves out are not the exact form")
    named = ", ".join(f"{what} ${_latex(size)}$" for what, size in left_out.items())
    return {
        "equation": name,
        "printed": f"${PRINTED[name]}$",
        "exact": f"${_latex(exact)}$",
        "left out, by name": named or "nothing (biases, where a layer has them)",
    }


def _latex(expression) -> str:
    return sympy.latex(sympy.expand(expression))


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
    return document.table(columns, rows, notes)


def comparison(facts: Facts) -> str:
    """Where Table 1's big models differ, and where their ranking turns."""
    a, b = BIG, TRANSFORMER_BIG
    sections = facts.comparison(a, b)
    about = (
        f"A is {a}, B is {b}; `python -m bench.macs --compare {a} {b}`. The rule is Table 1's. T is every input "
        "length at once; K and E of a model are changed alone. Each change of the ranking is solved from the closed "
        "forms and, where the models can be built, counted at both integers."
    )
    block = sections["compare-block"]
    forms = ("rule", "exact")
    return "\n\n".join([about, *(_blocks(block, form) for form in forms), document.rows_of(sections["compare-turns"])])


def _blocks(section: TableSection, form: str) -> str:
    """The columns of one form, what each model has of a block and how one model becomes the other."""
    keys = [column.key for column in section.table.columns if column.key.endswith(f"_{form}")]
    return document.rows_of(section, "block", *keys, below=form == "exact")


def premises(facts: Facts) -> str:
    """K D over d_m in each MoA row of Table 3: which of the paper's own models meet its premise."""
    rows = facts.tables["moa-table3"].rows
    widths = {}
    for row in rows:
        dims = next(e.dims for e in facts.ledger(row.preset) if e.path.endswith("self_attn.q_proj"))
        widths[row.name] = Fraction(dims["K"] * dims["D"], dims["d_m"])
    meet = [name for name, width in widths.items() if width == 1]
    table = document.table(
        [Column("row", "row"), Column("width", "K D / d_m", align="right")],
        [{"row": name, "width": str(width)} for name, width in widths.items()],
    )
    return f"k d_h equals d_m in {len(meet)} of the {len(rows)} rows of Table 3 ({', '.join(meet)}).\n\n{table}"


def unlisted(facts: Facts) -> str:
    """Models that the paper names and no table holds."""
    parts = []
    presets = {row.preset for name in facts.of_paper(COUNTED) for row in facts.tables[name].rows}
    table3 = facts.tables["moa-table3"]
    macs, params = table3.column("macs"), table3.column("params")
    for model in facts.claims.named_models:
        holding = "a table holds it" if model.preset in presets else "no table of the paper holds it"
        own, near = (facts.ledger(name) for name in (model.preset, model.nearest))
        parts.append(
            f"`{model.name}` is named in {model.place}, and {holding}. Under Table 3's rule it would print "
            f"{macs.printing.text(own.billed(macs.bills))} and {params.printing.text(own.params)} parameters; "
            f"`{model.nearest}`, the nearest of the tables, {macs.printing.text(near.billed(macs.bills))} and "
            f"{params.printing.text(near.params)}."
        )
    return "\n\n".join(parts)


def convolutions(facts: Facts) -> str:
    """The footnote that blames uncounted convolutions, against what the convolutions cost."""
    table = facts.tables["moa-table1"]
    macs, lines = table.column("macs"), []
    for row in (row for row in table.rows if row.preset in ("lightconv", "dynamicconv")):
        form = facts.ledger(row.preset)
        billed = form.billed(macs.bills)
        convolved = sum(entry.macs for entry in form if entry.kind == "conv")
        banded = convolved - form.macs + facts.changed(row.preset, spelling="band").macs
        vocabulary = form.billed(conventions.vocabulary_projection)
        lines.append(
            f"- {row.name} prints {macs.printed(row)}. All its linear layers are {billed:,}; the convolutions, which "
            f"the footnote says are missing, are {convolved:,}, or {banded:,} where they are written as products of "
            f"band matrices (spelling=band); the vocabulary projection is {vocabulary:,}, and without it the row "
            f"prints {macs.printing.text(billed - vocabulary)}."
        )
    return "\n".join(lines)


def savings(facts: Facts) -> str:
    """Why MoA Big's figure is smaller, and the length at which it stops saving."""
    forms = {name: facts.ledger(name) for name in (BIG, TRANSFORMER_BIG)}
    rule = facts.tables["moa-table1"].column("macs").bills
    attention = {name: form.select(conventions.attention).billed(rule) for name, form in forms.items()}
    dearer = "dearer" if attention[BIG] > attention[TRANSFORMER_BIG] else "cheaper"
    length = dearer_from(facts, BIG, TRANSFORMER_BIG)
    return (
        f"MoA's attention is {dearer} than the Transformer's; the rest is a narrower model: d_m "
        f"{_size(forms[BIG], 'd_m')} and feed-forward {_size(forms[BIG], 'F')} against "
        f"{_size(forms[TRANSFORMER_BIG], 'd_m')} and {_size(forms[TRANSFORMER_BIG], 'F')}. Executed, with S = T, MoA "
        f"Big costs more than Transformer big from T = {length:,} on."
    )


def _size(form: Ledger, letter: str) -> int:
    return next(entry.dims[letter] for entry in form if letter in entry.dims)


def quality(facts: Facts) -> str:
    """What the paper prints of quality; costs stand with their tables."""
    found = rated(facts)
    measures = list(dict.fromkeys(measure for one in found for measure in one.quality))
    columns = [
        Column("table", "table"),
        Column("row", "row"),
        *(Column(measure, measure, align="right") for measure in measures),
    ]
    rows = [{**dict.fromkeys(measures), **one.quality, **vars(one)} for one in found]
    about = (
        "BLEU and perplexity (PPL) are the paper's; MACs and parameters, in the tables above, are this software's, at "
        "the vocabulary and the lengths of the presets. Cheaper and better is up and left for BLEU, down and left for "
        "PPL."
    )
    return f"{about}\n\n{document.table(columns, rows)}"


def sizes(facts: Facts) -> str:
    """Table 5, each number held against the preset's."""
    table = facts.data["moa-table5"]
    for entry in table.entries:
        config = facts.config(entry["preset"])
        for key in entry.keys() - {"data", "preset"}:
            if getattr(config, key) != entry[key]:
                raise ValueError(f"{table.place}: {entry['preset']} has {key} {getattr(config, key)}, not {entry[key]}")
    return f"{_head(table)} Every preset has them.\n\n{_table(table)}"


def training(facts: Facts) -> str:
    """Table 6, a column for each run, with the multiply-accumulates of an update."""
    table = facts.data["moa-table6"]
    runs = []
    for entry in table.entries:
        form, length = facts.ledger(entry["preset"]), facts.target_length(entry["preset"])
        tokens = entry["tokens"] * entry["accumulation"]
        macs = (form.macs + backward(form).macs) * tokens // length
        runs.append({**entry, "per_update": f"{tokens:,}", "training": f"{float(Fraction(macs, 10**12)):.1f}"})
    settings = {column.key: column.head for column in table.columns}
    settings |= {"per_update": "tokens an update", "training": "training MACs an update, TMACs"}
    name, *others = settings
    columns = [Column("setting", settings[name]), *(Column(run[name], run[name], align="right") for run in runs)]
    rows = [{"setting": settings[key], **{run[name]: run.get(key) for run in runs}} for key in others]
    about = (
        " Appendix C names 32 V100 and prints no cost. Computed: forward and backward of the preset at the lengths "
        "that the paper counts MACs at, for each of the tokens; longer sequences cost more of the T^2 products."
    )
    return f"{_head(table)}{about}\n\n{document.table(columns, rows)}"


def _head(table: DataTable) -> str:
    return f"{table.source}, {table.place}. {table.about}".strip()


def _table(table: DataTable) -> str:
    columns = [Column(column.key, column.head) for column in table.columns]
    empty = dict.fromkeys(column.key for column in columns)
    return document.table(columns, [{**empty, **entry} for entry in table.entries])


PERCENT = {"unit": "%", "kind": "fixed", "digits": 1}
NOT_RUN = "Not stored: `python -m bench.routing --example --record` makes a record."
COEFFICIENTS = {
    (0.01, 0.0): "a", (0.0, 0.01): "z", (0.0, 0.001): "small_z", (0.01, 0.001): "both", (0.01, 0.01): "both_large"
}  # fmt: skip
"""The columns of Table 7 by the coefficients of L_a and L_z."""
CHOSEN = (0.01, 0.001)


def record(facts: Facts, example: str) -> Mapping[str, Any] | None:
    """The newest stored run of an example; None where there is none."""
    found = [one for one in facts.stored("routing") if one["example"] == example]
    return max(found, key=lambda one: one["environment"]["time"], default=None)


def routing(facts: Facts) -> str:
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
    return f"**Load.** {printed.about} Most of the example's: the middle half.\n\n{document.table(columns, rows)}"


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
        f"**PMI.** {printed.place}: {printed.about}\n\n{document.table(columns, printed.entries)}\n\nThe example's "
        f"tokens are named by their class:\n\n{document.table(heads, own)}"
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
        f"**Ablation of L_a and L_z.** {printed.place}:\n\n{document.table([first, *bleu], rows)}\n\n"
        f"The example's task loss, the shares of its experts and its losses:\n\n{document.table([first, *own], rows)}"
    )
