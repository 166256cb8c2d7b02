"""``headcount convert``: a dense preset's forms, their break-even, the paper's stages, and wrong usage."""

from headcount.bench.case import Case


def test_llama3_8b_conversion_matches_hand_formula(command, tables):
    found = tables("convert", "llama3-8b", "s=16", "r=8")
    d, h, g, c, F, V, L, T, k = 4096, 32, 8, 128, 14336, 128256, 32, 8192, 24
    dense = T * (L * (2 * d * h * c + 2 * d * g * c + 2 * h * T * c + 3 * d * F) + d * V)
    # all queries, whose norms route; scores, values and outputs of 24 heads
    ideal = T * (L * (d * h * c + d * k * c + 2 * d * g * c + 2 * k * T * c + 3 * d * F) + d * V)
    assert [(row["form"], row["macs"]) for row in found["conversion"]] == [
        ("dense", dense),
        ("released", dense),
        ("ideal", ideal),
    ]
    assert {row["params"] for row in found["conversion"]} == {8_030_261_248}
    assert [row["training_macs"] for row in found["conversion"]] == [3 * dense, 3 * dense, 3 * ideal]
    assert [(row["stage"], row["form"], row["tokens"], row["macs"]) for row in found["stages"]] == [
        (1, "dense", 300 * 10**9, 300 * 10**9 * 3 * dense // T),
        (2, "released", 100 * 10**9, 100 * 10**9 * 3 * dense // T),
        (2, "ideal", 100 * 10**9, 100 * 10**9 * 3 * ideal // T),
    ]
    _, out, _ = command("convert", "llama3-8b", "s=16", "r=8")
    text = " ".join(out.split())
    assert "ideal computes less than dense at every length" in text
    tokens = -(-100 * 10**9 * 3 * dense // (dense - ideal))
    assert f"repays the second stage after {tokens:,} (released)" in text


def test_conversion_matches_moh_preset(tables):
    (_, released, ideal) = tables("convert", "llm-s", "s=3,2", "r=6,8", "router=linear", "--set", "num_layers=2")[
        "conversion"
    ]
    fields = {"num_layers": 2, "num_shared_heads": (3, 2), "top_k": (6, 8)}
    case = Case.of("moh-llm-s-75", fields)
    assert (released["macs"], released["params"]) == (case.ledger.macs, case.ledger.params)
    assert (ideal["macs"], ideal["params"]) == (case.ideal_ledger.macs, case.ideal_ledger.params)


def test_break_even_length(command, tables):
    """6 heads of width 2, 5 of them used: 4 d_m T and 4 T^2 saved in a layer, 8 d_m T spent on routers."""
    sizes = ["s=2", "r=3", "router=linear", "--set=d_model=64", "--set=num_heads=6", "--set=head_dim=2"]
    _, out, _ = command("convert", "llm-s", *sizes)
    assert "Break-even: ideal computes less than dense from 65 tokens on." in out
    macs = {}
    for length in ("64", "65"):
        rows = tables("convert", "llm-s", *sizes, "--seq-len", length)["conversion"]
        macs[length] = rows[2]["macs"] - rows[0]["macs"]
    assert macs["64"] == 0 > macs["65"]
