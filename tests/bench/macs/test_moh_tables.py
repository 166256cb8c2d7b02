"""The tables of the MoH paper and the dense anchors, as printed and as counted."""

import json
from fractions import Fraction

import pytest

from headcount.bench.case import Case, ideal_form, ledger_of, resolve_lengths
from headcount.bench.macs.__main__ import main
from headcount.formulas.moh import activated_percent
from headcount.formulas.published.rounding import Printing
from headcount.formulas.published.tables import load
from headcount.models.configs.presets import preset


def rows_of(capsys, *argv):
    assert main([*argv, "--format", "json"]) == 0
    return [row for table in json.loads(capsys.readouterr().out)["tables"] for row in table["rows"]]


def test_shared_share_is_truncated(capsys):
    (row,) = rows_of(capsys, "--table", "moh-table6", "--counter", "closed-form")
    # stages of 5, 5, 22 and 5 layers: s = 3, 6, 3, 4 of s + r = 3, 6, 9, 16 heads
    shared, used = (sum(n * of for n, of in zip((5, 5, 22, 5), k, strict=True)) for k in ((3, 6, 3, 4), (3, 6, 9, 16)))
    assert Fraction(row["shared"]) == Fraction(100 * shared, used) == Fraction(100 * 131, 323)
    assert (row["shared_printed"], row["verdict"]) == ("40.5%", "reproduced")
    printing = load("moh-table6").column("shared").printing
    assert (printing.text(Fraction(row["shared"])), printing.rounding) == ("40.5%", "truncate")
    assert Printing("%", "half-up", 1).text(Fraction(row["shared"])) == "40.6%"
    assert load("moh-table6").column("shared").total(Case.of("transnext-small")) == 0


@pytest.mark.parametrize("moh_form", ["released", "ideal"])
def test_moh_llama3_counts_match_hand_formula(capsys, moh_form):
    argv = ["--preset", "moh-llama3-8b", "--set", f"form={moh_form}", "--seq-len", "8192", "--check"]
    # the command line reads the ideal form with all four; here two of them, for time
    counters = ["ptflops-pytorch", "torch"] if moh_form == "ideal" else ["all"]
    rows = rows_of(capsys, *argv, "--counter", *counters)
    heads = 32 if moh_form == "released" else 24
    attention = 8192 * 4096 * (4096 + 2 * 1024 + heads * 128) + 2 * heads * 8192**2 * 128
    exact = 32 * (attention + 3 * 8192 * 4096 * 14336) + 8192 * 4096 * 160896
    counted = {row["counter"]: row["macs"] for row in rows}
    assert counted.pop("ptflops-pytorch") == exact + 32 * 8192 * 14336
    assert set(counted.values()) == {exact} and len(counted) == (2 if moh_form == "ideal" else 4)


def test_moh_llm_row_matches_hand_formula(capsys):
    rows = {row["row"]: row for row in rows_of(capsys, "--table", "moh-llm", "--counter", "closed-form")}
    tokens, d, layers = 2048, 768, 12
    dense = layers * (4 * tokens * d * d + 2 * tokens**2 * d + 3 * tokens * d * 2048) + tokens * d * 65536
    row = rows["MoH-LLM-S 75 %"]
    idle = 3 * 64  # of 12 heads, 9 are on
    skipped = layers * (2 * tokens * d * idle + 2 * tokens**2 * idle)
    routers = layers * tokens * d * (12 + 2)
    assert row["baseline_macs"] == rows["LLM-S"]["macs"] == dense
    assert row["released_macs"] == row["macs"] == dense + routers
    assert row["ideal_macs"] == dense + routers - skipped
    assert row["to_baseline"] == str(Fraction(dense + routers - skipped, dense))
    pairs = tokens**2 - tokens * (tokens + 1) // 2
    assert row["baseline_causal_half_macs"] == dense - layers * 2 * pairs * d
    assert row["ideal_causal_half_macs"] == row["ideal_macs"] - layers * 2 * pairs * (d - idle)
    assert row["activated"] == row["activated_work"] == "75"
    # queries and outputs of the heads that are off
    assert row["ideal_active_params"] == row["active_params"] - layers * 2 * d * idle


def test_dit_xl4_is_a_second_rounding(capsys):
    rows = {row["row"]: row for row in rows_of(capsys, "--table", "dense-anchors", "--counter", "closed-form")}
    # two norms in each of 28 blocks and one behind them, of 64 tokens
    normalised = 57 * 64 * 1152
    assert rows["DiT-XL/4"]["because"].startswith(
        f"29,043,671,040 prints 29.0G, not 29.1G; 29,043,671,040 + {normalised:,} (norms) = "
        f"{29_043_671_040 + normalised:,} prints 29.05G, which rounded again prints 29.1G. 29.05 stands in"
    )


def test_activated_percent_is_rounded_to_5():
    """88.9 % of DiT-S/2's heads are printed as 90."""
    config = preset("moh-dit-s2-90")
    forms = [ledger_of(c, resolve_lengths(c, {})) for c in (config, ideal_form(config))]
    assert activated_percent(*forms) == Fraction(100 * (8 * 5 + 4 * 6), 12 * 6)
    assert load("moh-dit").column("activated").printing.text(activated_percent(*forms)) == "90%"
    assert Printing("%", "half-up").text(activated_percent(*forms)) == "89%"


def test_moh_grid_matches_hand_formula(capsys):
    rows = rows_of(capsys, "--grid", "h=6 s=0,2 r=3,5 d_h=5 g=3 d_m=7 T=11,13", "--counter", "torch", "--check")
    points = [row["point"] for row in rows if row["counter"] == "torch" and "form" not in row]
    assert len(points) == 2 * 3  # s = 2 with r = 5 of 4 is left out
    for row in rows:
        h, s, r, d, g, dm, t = row["point"].values()
        heads = s + r if row.get("form") == "ideal" else h
        routers = dm * t * (h - s + s + (2 if s else 0))
        assert row["macs"] == routers + 2 * t * dm * d * (heads + g) + 2 * heads * t * t * d
