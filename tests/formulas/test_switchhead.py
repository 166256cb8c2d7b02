"""SwitchHead's closed form against sums written out here, as integers and as symbols, and its limits."""

import sympy

from headcount.formulas import mha, switchhead

LETTERS = ("B", "T", "S", "d_m", "h", "d_h", "E", "K")
SIZES = dict(B=2, T=7, S=5, d_m=13, h=11, d_h=17, E=19, K=3)


def symbols():
    return {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in LETTERS}


def by_path(form, of="macs"):
    return {path: size for path, size in form.group(lambda entry: entry.path, of).items() if size}


def test_macs_match_docstring():
    z = symbols()
    B, T, S, d_m, h, d_h, E, K = z.values()
    token = d_m * h * (d_h + E + K * d_h)
    assert sympy.expand(switchhead.layer("", **z).macs - B * (T + S) * token - 2 * B * h * T * S * d_h) == 0


def test_one_expert_is_mha_and_two_routers():
    z = symbols() | dict(E=1, K=1)
    B, T, S, d_m, h, d_h = (z[letter] for letter in LETTERS[:6])
    dense = mha.layer("", B=B, T=T, S=S, d_m=d_m, h=h, d_h=d_h, g=h, bias=False)
    form = switchhead.layer("", **z)
    assert sympy.expand(form.macs - dense.macs - B * (T + S) * d_m * h) == 0
    assert sympy.expand(form.params - dense.params - 2 * d_m * h) == 0


def test_step_projects_new_tokens_only():
    sizes = SIZES | dict(T=1, S=31)
    assert switchhead.layer("", **sizes, n=30).macs == 2 * 11 * (2 * 13 * (17 + 19 + 3 * 17) + 2 * 31 * 17)
    stored = [entry.size for entry in switchhead.layer("", **sizes, n=30) if entry.kind == "cache"]
    assert sum(stored) == 2 * 2 * 31 * 11 * 17


def test_elementwise_sizes():
    sizes = [(entry.kind, entry.size) for entry in switchhead.layer("", **SIZES, n=2)]
    of_values, of_outputs = (11 * 19, 11 * 3 * 17), (11 * 3 * 17, 11 * 19)
    expected = [2 * 3 * size for size in of_values] + [2 * 7 * size for size in of_outputs]
    assert sorted(size for kind, size in sizes if kind == "elementwise") == sorted(expected)


def test_rotary_sizes():
    ropes = [entry.size for entry in switchhead.layer("", **SIZES, n=2, rotary=True) if entry.kind == "rope"]
    assert ropes == [2 * 7 * 11 * 17, 2 * 3 * 11 * 17]
