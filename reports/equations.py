"""Eq. 18-20 as printed beside the exact forms, and the named difference, derived from the ledger with symbols."""

import sympy

from headcount.bench.table import Column
from headcount.formulas import conventions, mha, moa
from headcount.formulas.symbols import LEGEND, symbol
from headcount.reports import markdown
from headcount.reports.facts import Facts

PRINTED = {
    "Eq. 18": r"C_{MoA} = k T^2 d_h + 2 (k + 1) T d_h d_m",
    "Eq. 19": r"C_{MHA} = T^2 d_m + 4 T d_m^2",
    "Eq. 20, MoA": r"M_{MoA} = (2 E + 2) d_h d_m",
    "Eq. 20, MHA": r"M_{MHA} = 4 d_m^2",
}
"""The paper's own spelling: its k is our K and its d_h our D."""


def legend(facts: Facts) -> str:
    """Every letter with its word in the code and its meaning."""
    columns = [Column("letter", "letter"), Column("word", "in the code"), Column("meaning", "meaning")]
    rows = [{"letter": f"${s.latex}$", "word": f"`{s.word}`" if s.word else "", "meaning": s.meaning} for s in LEGEND]
    return markdown.table(columns, rows)


def comparison(facts: Facts) -> str:
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
    return markdown.table(columns, rows)


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
