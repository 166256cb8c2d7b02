"""The MoA paper, with JetMoE: its tables and equations, cost and quality, departures from its code, routing."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from headcount.bench.macs import grid
from headcount.formulas import conventions, mha, moa
from headcount.formulas.symbols import symbol
from headcount.reports import counting, document, papers, tables
from headcount.reports.document import Page, Section, text
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG, last_crossover
from headcount.reports.plots import moa as plots

DERIVED = {
    "MoA layer, printed as Eq. 18": "--preset moa-8K8E128D --vars T,S,K,E,D,d_model",
    "MHA layer, printed as Eq. 19": "--preset transformer-base --vars T,S,h,d_h,d_model",
    "Ideal MoH layer": "--preset moh-llm-s-75 --set form=ideal --vars T,h,s,r,d_h,g,d_model",
    "Feed-forward block": "--preset transformer-base --part feed-forward --vars T,d_model,d_ff",
}
"""Arguments of bench.derive by what they derive."""


def page(facts: Facts) -> Page:
    """Return the page."""
    return Page(
        "moa",
        "Mixture of attention heads",
        facts.claims.papers["moa"].source + ".",
        [
            Section(
                "Eq. 18-20 as printed and as executed",
                [equations, derivations],
                [f"python -m bench.derive {argv}" for argv in DERIVED.values()],
            ),
            Section("Printed MACs against the rule", [plots.PRINTED], ["python -m bench.macs"]),
            *(
                Section(
                    f"{facts.tables[name].place}: {facts.tables[name].title}",
                    [partial(part, name=name) for part in (tables.counted, tables.counter_errors, tables.vocabularies)],
                    [f"python -m bench.macs --table {name}"],
                    "Printed, by the rule, exact and counted",
                )
                for name in facts.of_paper(COUNTED)
            ),
            Section("Cost against quality", [plots.QUALITY, tables.quality]),
            Section("Sizes and training", [tables.sizes, tables.training]),
            Section(
                "The big models of Table 1, side by side",
                [plots.BIG_MODELS, comparison, savings],
                [f"headcount compare {BIG} {TRANSFORMER_BIG}"],
                "Differences by block, and where they cross",
            ),
            Section(
                "JetMoE",
                [partial(tables.closed_form_tables, paper="jetmoe")],
                ["python -m bench.macs --counter closed-form --table jetmoe"],
            ),
            Section(
                "Departures from the authors' code",
                [partial(papers.departures, paper="moa")],
                (),
                "Each with its consequence in numbers",
            ),
            Section("Other numbers", [premises, convolutions, unlisted]),
            Section(
                "Expert load", [routing], ["python -m bench.routing --example --record"], "Figures, PMI and losses"
            ),
        ],
        {tables.DATA: partial(tables.data, paper=COUNTED), tables.QUALITY: tables.quality_data},
    )


PRINTED = {
    "Eq. 18": r"C_{MoA} = k T^2 d_h + 2 (k + 1) T d_h d_m",
    "Eq. 19": r"C_{MHA} = T^2 d_m + 4 T d_m^2",
    "Eq. 20, MoA": r"M_{MoA} = (2 E + 2) d_h d_m",
    "Eq. 20, MHA": r"M_{MHA} = 4 d_m^2",
}
"""The paper's notation: its k is K here, and its d_h is D."""

APPENDIX_B = r"\frac{M_{MoA}}{M_{MHA}} = \frac{2 (E + 1) d_h d_m}{4 d_m^2}"
"""Before the paper's next step, whose right-hand side has a factor K that nothing gives it."""


def equations(facts: Facts) -> str:
    """Return printed, exact and omitted terms as formulas. ArithmeticError where they do not add up."""
    T, d_m, h, D, E, K = (symbol(letter) for letter in ("T", "d_m", "h", "D", "E", "K"))
    moa_layer = moa.layer("", B=1, T=T, S=T, d_m=d_m, E=E, K=K, D=D, bias=False)
    mha_layer = mha.layer("", B=1, T=T, S=T, d_m=d_m, h=h, d_h=d_m / h, g=h, bias=False)
    router = moa_layer.select(conventions.router).params
    rows = [
        _row("Eq. 18", moa.macs_eq18(T=T, K=K, D=D, d_m=d_m), moa_layer.macs, grid.omitted(moa_layer)),
        _row("Eq. 19", mha.macs_eq19(T=T, d_m=d_m), mha_layer.macs, grid.omitted(mha_layer)),
        _row("Eq. 20, MoA", moa.params_eq20(E=E, D=D, d_m=d_m), moa_layer.params, {"router": router}),
        _row("Eq. 20, MHA", mha.params_eq20(d_m=d_m), mha_layer.params, {}),
    ]
    return f"{document.records(rows)}\n\n{_appendix_b(E, D, d_m)}"


def _appendix_b(E, D, d_m) -> str:
    """Return the ratio of parameters in the paper's letter q. ArithmeticError where it is not the ratio of Eq. 20."""
    ratio = moa.params_ratio_appendix_b(E=E, D=D, d_m=d_m)
    if sympy.simplify(ratio - moa.params_eq20(E=E, D=D, d_m=d_m) / mha.params_eq20(d_m=d_m)) != 0:
        raise ArithmeticError("Appendix B is not the ratio of Eq. 20")
    q = sympy.Symbol("q", positive=True)
    by_share = sympy.expand(ratio.subs(D, q * d_m / E))
    return text(
        "moa.appendix_b",
        printed=APPENDIX_B,
        by_share=sympy.latex(by_share),
        with_router=sympy.latex(sympy.expand(sympy.simplify(by_share + E / (4 * d_m)))),
    )


def _row(name: str, printed: Any, exact: Any, left_out: Mapping[str, Any]) -> dict[str, str]:
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


def derivations(facts: Facts) -> str:
    """Return the closed forms that are derived by running the modules."""
    parts = []
    for what, argv in DERIVED.items():
        section = facts.result(counting.derivation, argv)
        parts += [f"**{what}.** {' '.join(section.table.notes_above)}", document.rows_of(section, "kind", "latex")]
    return "\n\n".join(parts)


def comparison(facts: Facts) -> str:
    """Return the differences of Table 1's big models and their crossovers."""
    a, b = BIG, TRANSFORMER_BIG
    sections = {section.table.name: section for section in facts.result(counting.comparison, a, b)}
    parts = [text("moa.comparison", a=a, b=b)]
    blocks = sections["compare-block"]
    for form in ("rule", "exact"):
        keys = [column.key for column in blocks.table.columns if column.key.endswith(f"_{form}")]
        parts.append(document.rows_of(blocks, "block", *keys, below=form == "exact"))
    return "\n\n".join([*parts, document.rows_of(sections["compare-crossovers"])])


def premises(facts: Facts) -> str:
    """Return K D / d_m for each MoA row of Table 3: the models that meet the paper's premise."""
    rows = facts.tables["moa-table3"].rows
    widths = {}
    for row in rows:
        dims = next(e.dims for e in facts.ledger(row.preset) if e.path.endswith("self_attn.q_proj"))
        widths[row.name] = Fraction(dims["K"] * dims["D"], dims["d_m"])
    meet = [name for name, width in widths.items() if width == 1]
    about = text("moa.premises", count=len(meet), rows=len(rows), names=", ".join(meet))
    shown = [{"row": name, "K D / d_m": str(width)} for name, width in widths.items()]
    return f"{about}\n\n{document.records(shown, {'K D / d_m': {'align': 'right'}})}"


def unlisted(facts: Facts) -> str:
    """Return the costs of models that the paper names outside its tables."""
    parts = []
    presets = {row.preset for name in facts.of_paper(COUNTED) for row in facts.tables[name].rows}
    table3 = facts.tables["moa-table3"]
    macs, params = table3.column("macs"), table3.column("params")
    for model in facts.claims.named_models:
        holding = "a table holds it" if model.preset in presets else "no table of the paper holds it"
        own, near = (
            (macs.text(form.total_under(macs.multiplicity), "1M"), params.text(form.params, "1M"))
            for form in (facts.ledger(model.preset), facts.ledger(model.nearest))
        )
        parts.append(text("moa.unlisted", model=model, holding=holding, own=own, near=near))
    return "\n\n".join(parts)


def convolutions(facts: Facts) -> str:
    """Return the costs of the convolutions that Table 1 does not count, by its footnote."""
    table = facts.tables["moa-table1"]
    macs, lines = table.column("macs"), []
    for row in (row for row in table.rows if row.preset in ("lightconv", "dynamicconv")):
        form = facts.ledger(row.preset)
        counted = form.total_under(macs.multiplicity)
        convolved = sum(entry.macs for entry in form if entry.kind == "conv")
        banded = convolved - form.macs + facts.ledger(row.preset, spelling="band").macs
        vocabulary = form.total_under(conventions.vocabulary_projection)
        numbers = {"counted": counted, "convolved": convolved, "banded": banded, "vocabulary": vocabulary}
        printed = row.printed["macs"]
        without = macs.text(counted - vocabulary, printed)
        lines.append(text("moa.convolutions", row=row.name, printed=printed, without=without, **numbers))
    return "\n".join(lines)


def savings(facts: Facts) -> str:
    """Return why MoA Big costs less, and the length at which it stops saving."""
    forms = {name: facts.ledger(name) for name in (BIG, TRANSFORMER_BIG)}
    rule = facts.tables["moa-table1"].column("macs").multiplicity
    attention = {name: form.select(conventions.attention).total_under(rule) for name, form in forms.items()}
    return text(
        "moa.savings",
        dearer="dearer" if attention[BIG] > attention[TRANSFORMER_BIG] else "cheaper",
        moa=facts.config(BIG),
        dense=facts.config(TRANSFORMER_BIG),
        length=last_crossover(facts, BIG, TRANSFORMER_BIG),
    )


PERCENT = {"unit": "%", "kind": "fixed", "digits": 1}
CHOSEN, EXAMPLE = {"L_a": 0.01, "L_z": 0.001}, "moa"


def routing(facts: Facts) -> str:
    """Return the paper's analyses of load, PMI and losses, and those of the newest stored run of the example."""
    runs = [one for one in facts.stored("routing") if one["example"] == EXAMPLE]
    found = max(runs, key=lambda one: one["environment"]["time"])
    environment, experts = found["environment"], len(found["runs"][0]["tokens_per_expert"])
    command, commit = " ".join(environment["command"]), (environment["commit"] or "none")[:10]
    about = text("moa.routing", environment=environment, command=command, commit=commit, experts=experts)
    return "\n\n".join([about, _load(facts, found), _pmi(facts, found), _ablation(facts, found)])


def _percent(counts: Sequence[int]) -> list[float]:
    return sorted((100 * count / sum(counts) for count in counts), reverse=True)


def _load(facts: Facts, found: Mapping[str, Any]) -> str:
    """Return Figures 3 and 4, and the run with the paper's coefficients."""
    printed, experts = facts.data["moa-figures34"], facts.config(BIG).attention.num_experts
    chosen = next(run for run in found["runs"] if run["coefficients"] == CHOSEN)
    shares = _percent(chosen["tokens_per_expert"])
    middle = f"{shares[len(shares) * 3 // 4]:.1f}-{shares[len(shares) // 4]:.1f} %"
    own = [f"{shares[0]:.1f} %", middle, f"{shares[-1]:.1f} %"]
    balanced = {"share": "balanced, 1 / E", "printed": f"{100 / experts:.1f} %"}
    rows = [
        {"share of": entry["share"], f"{printed.place}, E = {experts}": entry["printed"], "example run": share}
        for entry, share in zip([*printed.entries, balanced], [*own, f"{100 / len(shares):.1f} %"], strict=True)
    ]
    return f"{text('moa.load', about=printed.about)}\n\n{document.records(rows)}"


def _pmi(facts: Facts, found: Mapping[str, Any]) -> str:
    """Return Table 4, and the example's experts."""
    printed = facts.data["moa-table4"]
    own = [
        {"expert": one["expert"], "class": one["class"], "tokens (PMI)": one["tokens"]}
        for one in sorted(found["experts"], key=lambda one: one["expert"])
    ]
    about = text("moa.pmi", place=printed.place, about=printed.about)
    shown = document.records(own, {"expert": {}})
    return "\n\n".join([about, tables.data_table(printed), text("moa.pmi_example"), shown])


def _ablation(facts: Facts, found: Mapping[str, Any]) -> str:
    """Return Table 7, and the example's runs."""
    own = []
    for run in found["runs"]:
        label = " + ".join(f"{size:g} {name}" for name, size in run["coefficients"].items() if size)
        shares = _percent(run["tokens_per_expert"])
        shown = {"coefficients": label, "task loss": run["loss"], "largest share": shares[0]}
        own.append(shown | {"smallest share": shares[-1]} | run["auxiliary_losses"])
    formats = dict.fromkeys(("task loss", "L_a", "L_z"), {"kind": "fixed", "digits": 3})
    formats |= dict.fromkeys(("largest share", "smallest share"), PERCENT)
    printed = facts.data["moa-table7"]
    about, example = text("moa.ablation", place=printed.place), text("moa.ablation_example")
    return "\n\n".join([about, tables.data_table(printed), example, document.records(own, formats)])
