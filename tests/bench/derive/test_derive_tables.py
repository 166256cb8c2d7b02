"""Rows, differences and requests of headcount derive."""

from types import SimpleNamespace

import sympy

from headcount.bench.derive import __main__ as command
from headcount.bench.derive.derived import Derivation, starts
from headcount.formulas.symbols import symbol


def test_latex_names_of_sizes():
    n, width = symbol("n"), symbol("width")
    rows = command._rows(("n", "width"), Derivation({"conv": 7 * n * width}, ""), {"n": "mlp_ratio", "width": "d_m"})
    (latex,) = {row.values["latex"] for row in rows}
    assert set(latex.strip("$").split()) == {"7", r"\mathit{mlp\_ratio}", "d_m"}


def test_kind_of_one_form_is_a_difference():
    T = sympy.Symbol("T")
    found = SimpleNamespace(by_kind={"linear": 2 * T, "scores": T**2})
    assert command._differences("it", found, {"linear": T + T, "values": 3 * T}) == [
        "it: values less the closed form is -3*T",
        "it: scores less the closed form is T**2",
    ]


def test_request_has_settings_starts_and_steps(monkeypatch):
    asked = {}
    answer = {"by_kind": {"linear": "7*T*d**2"}, "method": "", "domain": [], "layout": [], "witness": None}
    monkeypatch.setattr(command, "run_isolated", lambda request: asked.update(request) or answer)
    words = ["--module", "mine.py:net", "--vars", "T,d", "--set", "n=7", "--base", "d=6:2"]
    command.plan(command.parser().parse_args(words))
    assert (asked["task"], asked["spec"], asked["settings"]) == ("derive", "mine.py:net", {"n": 7})
    # T starts where sequences do
    assert asked["base"] == {"T": 11, "d": 6} and asked["step"] == {"T": 1, "d": 2}


def test_unknown_sizes_start_at_primes():
    found = starts({name: name for name in "abcefijklm"})
    assert all(sympy.isprime(start) for start in found.values())
    # those that no letter of ours starts at, and then one for all that are left
    assert list(found.values()) == [7, 23, 29, 31, 37, 41, 43, 47, 53, 53]
