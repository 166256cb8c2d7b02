"""Each letter of each entry names its own size, in closed forms with symbols for sizes.

Sums of integers do not distinguish letters of equal size.
"""

import pytest

from headcount.bench.case import attention_form, attentions, ledger_of, model_form
from headcount.formulas import backward
from headcount.formulas.mha import causal_half
from headcount.formulas.symbols import LEGEND, by_letter, symbol
from headcount.models.configs.make import make_config
from tests.cases import MODEL_FIELDS, configurations

SYMBOLS = {row.letter: symbol(row.letter) for row in LEGEND if row.letter not in ("2", "6")}
B, T, S, M, n, s, r, h, d_h = (SYMBOLS[letter] for letter in ("B", "T", "S", "M", "n", "s", "r", "h", "d_h"))
OTHERS = {
    # the new tokens of a step, noise of training alone, tokens of other predictors
    "T": {S, 0, T - 1, T - 2},
    "S": {T, S - n, S - T, T - 1, T - 2, 0},
    "k": {s + r},
    "E": {h - s, SYMBOLS["E_ff"]},
    "K": {SYMBOLS["K_ff"]},
    "g": {h},
    "d_qk": {d_h + SYMBOLS["d_r"], SYMBOLS["d_c"] + SYMBOLS["d_r"]},
    "d_out": {SYMBOLS["d_m"]},
    "N_kv": {T + M, T},
    "N_qk": {T * (2 * S - T + 1) / 2},
    "p_h": {SYMBOLS["p"], 7, 3},
    "p_w": {SYMBOLS["p"], 7, 3},
    "w": {9},
    "2": {2},
    "6": {6},
}
"""Sizes that a letter may have other than its own symbol."""
LAYERS = dict(configurations("form", "router", "gates", "gate"))


def check_letters(form, listed=()):
    """Check the letters of a closed form; ``listed``: integer sizes of single layers."""
    assert len(form) > 0
    for entry in (*form, *backward.backward(form)):
        for letter, size in (*entry.dims.items(), *entry.weight.items()):
            # the minimum of two sizes: counted steps test it
            if letter != "N_w" and (entry.kind, letter) != ("cache_read", "g"):
                allowed = {symbol(letter), *OTHERS.get(letter, ()), *listed}
                assert by_letter(letter) and size in allowed, (entry.path, entry.kind, letter)


@pytest.mark.parametrize("name", LAYERS)
def test_letters_of_a_layer(name):
    config = LAYERS[name]
    form = ledger_of(config, dict(config.lengths), SYMBOLS)
    check_letters(form)
    check_letters(causal_half(form))
    if not config.no_step:
        check_letters(attention_form(config, SYMBOLS)("a", B=B, T=T, S=S, n=n))


@pytest.mark.parametrize("name", MODEL_FIELDS)
def test_letters_of_a_model(name):
    config = make_config(MODEL_FIELDS[name])
    form, letters, lengths = (
        model_form(config),
        config.letters(),
        config.length_letters(dict.fromkeys(config.lengths, 3)),
    )
    given = {letter: SYMBOLS.get(letter, size) if size != 0 else 0 for letter, size in (letters | lengths).items()}
    own = [size for letter, size in letters.items() if letter not in SYMBOLS]
    listed = {*(size for sizes in own if isinstance(sizes, tuple) for size in sizes), letters.get("F_e")}
    listed |= {letters["F_e"] * letters["E_s"]} if "F_e" in letters else set()
    check_letters(form.model(attentions(config, SYMBOLS), **given), listed)
    if not hasattr(form, "NO_DECODE_STEP"):
        check_letters(form.model(attentions(config, SYMBOLS), **given | {"n": S - T}), listed)
