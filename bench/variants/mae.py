"""Capabilities of mixture of attentive experts: grids, searches and timing. Importable without torch."""

from headcount.bench.variants.variant import HEADS, WIDTH, Grid, Letter, Search, Variant

VARIANT = Variant(
    name="mae",
    label="MAE",
    grid=Grid(("h", "d_h", "G"), ("h", "G")),
    search=Search(
        "mae-7",
        {"h": 2, "d_h": 2, "G": 1},
        {"h": HEADS, "d_h": WIDTH, "G": Letter(tuple(range(64, 513, 64)), range(1, 513), "a multiple of 64")},
        ("h",),
        lambda sizes, _: {"2 <= h": sizes["h"] >= 2},
    ),
)
