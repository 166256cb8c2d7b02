"""Tables of papers: numbers by hand, and the vocabularies that printed parameters imply."""

from headcount.bench.case import Case
from headcount.bench.macs.grid import count_grid, parse
from headcount.models.configs.presets import parse_overrides

CLOSED = ["--counter", "closed-form"]


def test_moh_llm_row_matches_hand_formula(tables):
    rows = {row["row"]: row for row in tables("table", "moh-llm", *CLOSED)["moh-llm"]}
    tokens, d, layers = 2048, 768, 12
    dense = layers * (4 * tokens * d * d + 2 * tokens**2 * d + 3 * tokens * d * 2048) + tokens * d * 65536
    row = rows["MoH-LLM-S 75 %"]
    idle = 3 * 64  # 9 of 12 heads are selected
    skipped = layers * (2 * tokens * d * idle + 2 * tokens**2 * idle)
    routers = layers * tokens * d * (12 + 2)
    assert row["baseline_macs"] == rows["LLM-S"]["macs"] == dense
    assert row["released_macs"] == row["macs"] == dense + routers
    assert row["ideal_macs"] == dense + routers - skipped
    assert row["to_baseline"] == (dense + routers - skipped) / dense
    assert row["activated"] == row["activated_work"] == 75
    # queries and outputs of the heads that are not selected
    assert row["ideal_active_params"] == row["active_params"] - layers * 2 * d * idle


def test_moh_grid_matches_hand_formula():
    rows = count_grid(parse("h=6 s=0,2 r=3,5 d_h=5 g=3 d_m=7 T=11,13"), ["torch"]).rows
    assert len(rows) == 2 * 3  # s = 2 with r = 5 of 4 is left out
    for row in rows:
        h, s, r, d, g, dm, t = row.point.values()
        routers = dm * t * (h - s + s + (2 if s else 0))
        for form, heads in ((row.count, h), (row.ideal, s + r)):
            exact = routers + 2 * t * dm * d * (heads + g) + 2 * heads * t * t * d
            assert exact == form.ledger.macs == form.tools[0].macs


def test_jetmoe_sizes_are_reproduced(tables):
    (row,) = tables("table", "jetmoe", *CLOSED, "--check")["jetmoe"]
    assert (row["params"], row["active_without_embedding"]) == (8_522_237_952, 2_265_909_248)
    # 24 layers, of 2048 x 32,000 words of which the embedding is left out
    assert row["active_params"] - row["active_without_embedding"] == 2048 * 32000
    assert row["verdict"] == "reproduced"


def params(preset, words):
    return Case.of(preset, parse_overrides(preset, [f"vocab_size={words}"])).ledger.params


def test_vocabulary_range_is_tight(tables):
    row = tables("table", "moa-table1", "--params", *CLOSED)["moa-table1-vocabulary"][0]
    assert row["row"] == "Transformer base (Vaswani 2017)"
    assert row["params_printed"] == {"En-De": "65M", "En-Fr": "62M"}
    for pair, printed in (("En-De", 65), ("En-Fr", 62)):
        low, high = row["vocabularies"][pair].values()
        sizes = [params("transformer-base", words) / 10**6 for words in (low - 1, low, high, high + 1)]
        assert sizes[0] < printed - 0.5 <= sizes[1] < sizes[2] < printed + 0.5 <= sizes[3]
