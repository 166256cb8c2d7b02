"""Eq. 18-20 as printed beside the exact forms, and the named difference, derived from the ledger with symbols."""

import sympy

from headcount.bench.table import Column
from headcount.formulas import conventions, mha, moa
from headcount.formulas.symbols import symbol
from headcount.reports import markdown
from headcount.reports.facts import Facts

PRINTED = {
    "Eq. 18": r"C_{MoA} = k T^2 d_h + 2 (k + 1) T d_h d_m",
    "Eq. 19": r"C_{MHA} = T^2 d_m + 4 T d_m^2",
    "Eq. 20, MoA": r"M_{MoA} = (2 E + 2) d_h d_m",
    "Eq. 20, MHA": r"M_{MHA} = 4 d_m^2",
}
"""The paper's own spelling: its k is our K and its d_h our D."""

APPENDIX_B = r"\frac{M_{MoA}}{M_{MHA}} = \frac{2 (E + 1) d_h d_m}{4 d_m^2}"
"""Before the paper's next step, whose right-hand side has a factor K that nothing gives it."""


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
    return f"{markdown.table(columns, rows)}\n\n{_appendix_b(E, D, d_m)}"


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
