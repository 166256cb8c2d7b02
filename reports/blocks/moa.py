"""Blocks of the MoA paper: its equations, its big models, its premises, convolutions and the load of its experts."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy

from headcount.bench.case import Case
from headcount.bench.derive import __main__ as derive
from headcount.bench.macs import compare, grid
from headcount.bench.macs.compare import CrossoverRow
from headcount.bench.result import Table, columns_of
from headcount.formulas import conventions, mha, moa
from headcount.formulas.symbols import symbol
from headcount.reports import counting, document, papers
from headcount.reports.facts import COUNTED, Facts
from headcount.reports.papers import BIG, TRANSFORMER_BIG
from headcount.reports.plots import moa as plots

printed_plot, quality_plot, big_models_plot = plots.PRINTED, plots.QUALITY, plots.BIG_MODELS

PRINTED = {
    "Eq. 18": r"C_{MoA} = k T^2 d_h + 2 (k + 1) T d_h d_m",
    "Eq. 19": r"C_{MHA} = T^2 d_m + 4 T d_m^2",
    "Eq. 20, MoA": r"M_{MoA} = (2 E + 2) d_h d_m",
    "Eq. 20, MHA": r"M_{MHA} = 4 d_m^2",
}
"""The paper's notation: its k is K here, and its d_h is D."""


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
    return document.records(rows)


def appendix_b(facts: Facts) -> dict[str, str]:
    """Return the ratio of parameters in the paper's letter q. ArithmeticError where it is not the ratio of Eq. 20."""
    E, D, d_m = (symbol(letter) for letter in ("E", "D", "d_m"))
    ratio = moa.params_ratio_appendix_b(E=E, D=D, d_m=d_m)
    if sympy.simplify(ratio - moa.params_eq20(E=E, D=D, d_m=d_m) / mha.params_eq20(d_m=d_m)) != 0:
        raise ArithmeticError("Appendix B is not the ratio of Eq. 20")
    q = sympy.Symbol("q", positive=True)
    by_share = sympy.expand(ratio.subs(D, q * d_m / E))
    with_router = sympy.expand(sympy.simplify(by_share + E / (4 * d_m)))
    return {"by_share": sympy.latex(by_share), "with_router": sympy.latex(with_router)}


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


def derivation(facts: Facts, argv: str) -> str:
    """Return the closed form that ``bench.derive`` finds for these arguments, and how it was found."""
    rows, found_by = facts.result(counting.derivation, argv)
    table = Table("derive", argv, derive.COLUMNS, rows)
    return f"{' '.join(found_by)}\n\n{document.rows_of(table, 'kind', 'latex')}"


def comparison(facts: Facts) -> str:
    """Return the differences of Table 1's big models by block, under the rule and exact, and their crossovers."""
    by_block, crossed = facts.result(counting.comparison, BIG, TRANSFORMER_BIG)
    parts = []
    for quantity in compare.macs_by_rule(Case.of(BIG), Case.of(TRANSFORMER_BIG)):
        parts.append(document.rows_of(compare.part_table("block", "", by_block, [quantity])))
    crossovers = Table("crossovers", "", columns_of(CrossoverRow), crossed, note_column="counted")
    return "\n\n".join([*parts, document.rows_of(crossovers)])


def premises(facts: Facts) -> dict[str, Any]:
    """Return K D / d_m for each MoA row of Table 3, and the models that meet the paper's premise."""
    rows = facts.tables["moa-table3"].rows
    widths = {}
    for row in rows:
        dims = next(e.dims for e in facts.ledger(row.target) if e.path.endswith("self_attn.q_proj"))
        widths[row.name] = Fraction(dims["K"] * dims["D"], dims["d_m"])
    meet = [name for name, width in widths.items() if width == 1]
    shown = [{"row": name, "K D / d_m": str(width)} for name, width in widths.items()]
    table = document.records(shown, {"K D / d_m": {"align": "right"}})
    return {"count": len(meet), "rows": len(rows), "names": ", ".join(meet), "table": table}


def unlisted(facts: Facts) -> str:
    """Return the costs of models that the paper names outside its tables."""
    parts = []
    presets = {row.target for name in facts.of_paper(COUNTED) for row in facts.tables[name].rows}
    table3 = facts.tables["moa-table3"]
    macs, params = table3.column("macs"), table3.column("params")
    for model in facts.claims.named_models:
        holding = "a table holds it" if model.preset in presets else "no table of the paper holds it"
        own, near = (
            (macs.text(form.total_under(macs.multiplicity), "1M"), params.text(form.params, "1M"))
            for form in (facts.ledger(model.preset), facts.ledger(model.nearest))
        )
        parts.append(
            f"`{model.name}` is named in {model.place}, and {holding}. Under Table 3's rule it would print {own[0]} "
            f"and {own[1]} parameters; `{model.nearest}`, the nearest of the tables, {near[0]} and {near[1]}."
        )
    return "\n\n".join(parts)


def convolutions(facts: Facts) -> str:
    """Return the costs of the convolutions that Table 1 does not count, by its footnote."""
    table = facts.tables["moa-table1"]
    macs, lines = table.column("macs"), []
    for row in (row for row in table.rows if row.target in ("lightconv", "dynamicconv")):
        form = facts.ledger(row.target)
        counted = form.total_under(macs.multiplicity)
        convolved = sum(entry.macs for entry in form if entry.kind == "conv")
        banded = convolved - form.macs + facts.ledger(row.target, spelling="band").macs
        vocabulary = form.total_under(conventions.vocabulary_projection)
        printed = row.printed["macs"]
        without = macs.text(counted - vocabulary, printed)
        lines.append(
            f"- {row.name} prints {printed}. All its linear layers cost {counted:,}. The convolutions, which are "
            f"missing by the footnote, cost {convolved:,}, or {banded:,} if they are written as products of band "
            f"matrices (spelling=band). The vocabulary projection costs {vocabulary:,}; without it the row prints "
            f"{without}."
        )
    return "\n".join(lines)


def savings(facts: Facts) -> dict[str, Any]:
    """Return why MoA Big costs less, and the length at which it stops saving."""
    forms = {name: facts.ledger(name) for name in (BIG, TRANSFORMER_BIG)}
    rule = facts.tables["moa-table1"].column("macs").multiplicity
    attention = {name: form.select(conventions.attention).total_under(rule) for name, form in forms.items()}
    big, dense = facts.config(BIG), facts.config(TRANSFORMER_BIG)
    return {
        "dearer": "dearer" if attention[BIG] > attention[TRANSFORMER_BIG] else "cheaper",
        "big_width": big.d_model,
        "big_ffn_width": big.d_ff,
        "dense_width": dense.d_model,
        "dense_ffn_width": dense.d_ff,
        "length": papers.last_crossover(facts, BIG, TRANSFORMER_BIG),
    }


PERCENT = {"unit": "%", "kind": "fixed", "digits": 1}
CHOSEN, EXAMPLE = {"L_a": 0.01, "L_z": 0.001}, "moa"


def example_run(facts: Facts) -> dict[str, Any]:
    """Return where and when the newest stored run of the example ran, and its number of experts."""
    found = _example(facts)
    environment = found["environment"]
    return {
        "command": " ".join(environment["command"]),
        "device": environment["device"],
        "torch": environment["packages"]["torch"],
        "commit": (environment["commit"] or "none")[:10],
        "time": environment["time"],
        "experts": len(found["runs"][0]["tokens_per_expert"]),
    }


def _example(facts: Facts) -> Mapping[str, Any]:
    """Return the newest stored run of the example."""
    runs = [one for one in facts.stored("routing") if one["example"] == EXAMPLE]
    return max(runs, key=lambda one: one["environment"]["time"])


def _percent(counts: Sequence[int]) -> list[float]:
    return sorted((100 * count / sum(counts) for count in counts), reverse=True)


def load(facts: Facts) -> dict[str, str]:
    """Return what is said of Figures 3 and 4, and a table of them and of the example's run with the paper's
    coefficients."""
    found = _example(facts)
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
    return {"about": printed.about, "table": document.records(rows)}


def pmi(facts: Facts) -> dict[str, str]:
    """Return what is said of Table 4, and a table of the example's experts."""
    found, printed = _example(facts), facts.data["moa-table4"]
    own = [
        {"expert": one["number"], "class": one["token_class"], "tokens (PMI)": one["tokens"]}
        for one in sorted(found["experts"], key=lambda one: one["number"])
    ]
    return {"about": printed.about, "example": document.records(own, {"expert": {}})}


def ablation(facts: Facts) -> str:
    """Return a table of the example's runs, as Table 7 has those of the paper."""
    found = _example(facts)
    own = []
    for run in found["runs"]:
        label = " + ".join(f"{size:g} {name}" for name, size in run["coefficients"].items() if size)
        shares = _percent(run["tokens_per_expert"])
        shown = {"coefficients": label, "task loss": run["loss"], "largest share": shares[0]}
        own.append(shown | {"smallest share": shares[-1]} | run["auxiliary_losses"])
    formats = dict.fromkeys(("task loss", "L_a", "L_z"), {"kind": "fixed", "digits": 3})
    formats |= dict.fromkeys(("largest share", "smallest share"), PERCENT)
    return document.records(own, formats)
