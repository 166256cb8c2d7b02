"""Capabilities of SwitchHead: grids, searches and timing. Importable without torch."""

from headcount.bench.variants.variant import WIDTH, Grid, Letter, Search, Variant

VARIANT = Variant(
    name="switchhead",
    label="SwitchHead",
    grid=Grid(("h", "E", "K", "d_h"), ("h", "E", "K")),
    search=Search(
        "switchhead-llm-s",
        {"h": 1, "K": 1, "E": 1, "d_h": 2},
        {
            "h": Letter((*range(1, 9), 10, 12, 16), range(1, 17), "1 to 8, 10, 12 or 16"),
            "K": Letter(tuple(range(1, 9)), range(1, 9), "1 to 8"),
            "E": Letter((*range(1, 9), 10, 12, 16), range(1, 17), "1 to 8, 10, 12 or 16"),
            "d_h": WIDTH,
        },
        ("K", "E"),
        lambda sizes, _: {"K <= E": sizes["K"] <= sizes["E"]},
    ),
)
