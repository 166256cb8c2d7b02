"""Verdicts of printed training FLOPs, utilisation and parameters, and the arithmetic of single figures."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from headcount.bench.macs.published import case_of, figures_table, judged
from headcount.formulas.published import tables, verdicts

REPRODUCED = "reproduced"


def judge(table):
    return verdicts.judge(table, case_of)


def cells(table, figure):
    """Return the values of a column in order, as floats in the printed unit."""
    found = [(cell.figure, cell.value) for cell in judge(table) if cell.figure.name == figure]
    return [float(value.low / one.scale) for one, value in found]


@pytest.mark.parametrize("name", tables.figure_names())
def test_verdicts(name):
    rows = figures_table(name).rows
    assert len(rows) == sum(len(model.printed) for model in tables.load(name).rows)
    assert [row.failures for row in rows if row.failures] == []


def last_digit_changed(text, by):
    """Return a printed number with its last digit before the exponent and trailing zeros changed."""
    mantissa, _, exponent = text.replace(",", "").partition("E")
    digits = len(mantissa.partition(".")[2])
    changed = Fraction(mantissa) + by * Fraction(1, 10**digits)
    return f"{float(changed):.{digits}f}" + (f"E{exponent}" if exponent else "")


@pytest.mark.parametrize("name", tables.figure_names())
def test_other_last_digit_is_not_reproduced(name):
    for cell in judged(name):
        # a quotient of rounded inputs may print more than one number
        rounded = any(isinstance(given, str) and "/" not in given for given in cell.row.given.values())
        zeros = cell.figure.trailing_zeros and "." not in cell.printed
        if cell.verdict == REPRODUCED and not (rounded or zeros or cell.figure.formula):
            assert cell.figure.prints(cell.value, cell.printed)
            for by in (-1, 1):
                assert not cell.figure.prints(cell.value, last_digit_changed(cell.printed, by))


@pytest.mark.parametrize("wrong", ["2 * L * C * d_a + 1", "L * C * d_a", "4 * L * C * d_a", "2 * L * d * d_a"])
def test_other_formula_is_not_reproduced(wrong):
    table = tables.load("kaplan-table1")
    mask = replace(table.rows[2], printed={"masked": wrong})
    # palm counts both products
    expected = "explained" if wrong == "4 * L * C * d_a" else "no rule found"
    assert [cell.verdict for cell in judge(replace(table, rows=(mask,)))] == [expected]


def test_chinchilla_ratios_are_not_those_of_its_appendix():
    table = tables.load("chinchilla-a4")
    used = [round(ratio, 4) for ratio in cells(table, "ratio")]
    assert used == [1.0264, 1.1019, 1.0838, 1.0447, 1.0335, 0.9944]
    as_printed = replace(table, columns=tuple(replace(one, rule="chinchilla") for one in table.columns))
    assert [round(ratio, 2) for ratio in cells(as_printed, "ratio")] == [1.58, 1.32, 1.23, 1.15, 1.12, 1.03]


def test_chinchilla_ratios_hold_with_biases():
    table = tables.load("chinchilla-a4")
    models = tuple(replace(one, set={**one.set, "bias": True}) for one in table.rows)
    verdicts = [cell.verdict for cell in judge(replace(table, rows=models, fits=()))]
    assert verdicts == [REPRODUCED] * 6


def test_megatron_days():
    table = tables.load("megatron-days")
    assert [round(days, 1) for days in cells(table, "days")] == [33.9, 83.2]
    assert "83.88; Table 1 has 1008.0 B" in judge(table)[1].because


def test_llama3_groups_of_4_are_not_its_devices():
    table = tables.load("llama3-table4")
    row = replace(table.rows[2], given={**table.rows[2].given, "dp": 4})
    verdicts = {cell.figure.name: cell.verdict for cell in judge(replace(table, rows=(row,)))}
    assert verdicts == {"devices": "no rule found", "tokens": "no rule found", "mfu": REPRODUCED}


def with_routers(table):
    """Return the figures of whole squares of ``table``, with the routers counted."""
    whole = {"deepseek_whole": "megatron_model"}
    return replace(table, columns=tuple(replace(f, rule=whole[f.rule]) for f in table.columns if f.rule in whole))


def test_deepseek_table2_in_decimals():
    table = tables.load("deepseek-table2")
    assert [round(work, 3) for work in cells(table, "flops")] == [155.021, 249.819, 444.86, 2473.234]
    plain = replace(table, rows=[replace(row, explain={}) for row in table.rows[2:]])
    qwen, llama = judge(plain)
    assert qwen.verdict == "no rule found" and "no rule tried prints it: 6n " in qwen.because
    # 6 N_kv is what 2,048 fewer tokens save: keys and values are 2 x 1,024 wide, and the squares are halved
    assert llama.verdict == "explained" and llama.because.endswith("; deepseek_causal at T = 2,048 gives 2,447.87")


def dense_without_keys(layers, d, d_ff, heads, pair_heads, vocabulary, T):
    """Return the training FLOPs per token of a dense model of heads of 128 without key and value projections."""
    weights = layers * (2 * d * heads * 128 + 3 * d * d_ff) + vocabulary * d
    return 6 * weights + 6 * layers * 2 * pair_heads * 128 * Fraction(T + 1, 2)


def test_deepseek_dense_rows_leave_keys_out():
    qwen = dense_without_keys(80, 8192, 24_576, 64, 128, 152_064, 4096)
    llama = dense_without_keys(126, 16_384, 53_248, 128, 128, 128_256, 4096)
    assert [round(float(one) / 1e9, 2) for one in (qwen, llama)] == [394.03, 2447.87]
    cells = judge(tables.load("deepseek-table2"))[2:]
    assert [cell.verdict for cell in cells] == ["explained (sizes fitted)"] * 2
    assert "394.03" in cells[0].because and "2,447.87" in cells[1].because


def test_mixtral_counts_its_routers_twice():
    d, layers, experts, tokens = 4096, 32, 8, 12 * 2048
    weights = layers * (2 * d * d + 2 * d * 1024 + experts * 3 * d * 14_336) + 32_000 * d
    router, pairs = layers * d * experts, layers * 2 * 2048 * d
    before = 6 * tokens * (weights + router + 32_000 * d + (2 * layers + 1) * d + Fraction(pairs, 2))
    after = 6 * tokens * (weights + 2 * router + pairs)
    assert [f"{float(one) / 1e12:.3f}" for one in (before, after)] == ["6926.189", "6946.560"]
    cells = [cell for cell in judge(tables.load("maxtext")) if cell.row.name == "mixtral-8x7b"]
    assert [cell.verdict for cell in cells] == ["explained", "explained"]
    assert "6,926.189 prints 6926.1 cut off" in cells[0].because
    assert "6,946.560 prints 6946.5 cut off" in cells[1].because


@pytest.mark.parametrize("d", [11, 13, 512])
def test_kaplan_embedding_is_two_flops_an_element(d):
    table = tables.load("kaplan-table1")
    embed = table.rows[0]
    moved = replace(embed, set={**embed.set, "d_model": d}, given={**embed.given, "d": d})
    params, flops = judge(replace(table, rows=(moved,)))
    assert (params.verdict, flops.verdict) == (REPRODUCED, "explained")
    assert flops.because.startswith(f"2 * looked_up: {4 * d:,};")


def test_deepseek_utilisation_leaves_routers_out():
    cells = judge(with_routers(tables.load("deepseek-table4")))
    assert [cell.verdict for cell in cells] == ["explained"] * 4
    assert all("; deepseek_whole gives " in cell.because for cell in cells)


def test_deepseek_peak_is_989():
    table = tables.load("deepseek-table4")
    other = tuple(replace(f, value=f.value.replace("989 *", "9894 / 10 *")) for f in table.columns)
    verdicts = Counter(cell.verdict for cell in judge(replace(table, columns=other)) if cell.figure.rule)
    assert verdicts == {REPRODUCED: 4, "no rule found": 4}
