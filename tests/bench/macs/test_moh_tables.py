"""The tables of the MoH paper and the dense anchors, as printed and as counted."""

import json
from fractions import Fraction

from headcount.bench.macs.__main__ import main


def rows_of(capsys, *argv):
    assert main([*argv, "--format", "json"]) == 0
    return [row for table in json.loads(capsys.readouterr().out)["tables"] for row in table["rows"]]


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


def test_moh_grid_matches_hand_formula(capsys):
    rows = rows_of(capsys, "--grid", "h=6 s=0,2 r=3,5 d_h=5 g=3 d_m=7 T=11,13", "--counter", "torch", "--check")
    points = [row["point"] for row in rows if row["counter"] == "torch" and "form" not in row]
    assert len(points) == 2 * 3  # s = 2 with r = 5 of 4 is left out
    for row in rows:
        h, s, r, d, g, dm, t = row["point"].values()
        heads = s + r if row.get("form") == "ideal" else h
        routers = dm * t * (h - s + s + (2 if s else 0))
        assert row["macs"] == routers + 2 * t * dm * d * (heads + g) + 2 * heads * t * t * d
