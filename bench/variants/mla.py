"""Capabilities of multi-head latent attention: grids, searches and timing. Importable without torch."""

from headcount.bench.variants.variant import HEADS, Grid, Letter, Search, Variant

WIDTH = Letter(tuple(range(32, 257, 32)), range(1, 257), "a multiple of 32")
LATENT = Letter(tuple(range(32, 1025, 32)), range(1, 1025), "a multiple of 32")
ROTARY = Letter((16, 32, 64), range(2, 129), "16, 32 or 64")

VARIANT = Variant(
    name="mla",
    label="MLA",
    grid=Grid(("h", "d_h", "d_r", "d_v", "d_c", "d_q"), ("h", "d_c")),
    search=Search(
        "mla-llm-s",
        {"h": 1, "d_h": 2, "d_r": 2, "d_v": 2, "d_c": 1},
        # Every width is searched, also those that a configuration derives by default.
        {"h": HEADS, "d_h": WIDTH, "d_r": ROTARY, "d_v": WIDTH, "d_c": LATENT},
        ("h",),
        lambda sizes, _: {"1 <= h": sizes["h"] >= 1},
        remark=lambda attention: "Five letters: --all-integers needs a --range of some.",
    ),
    forms="keys and values made of every stored latent, and their projections absorbed into queries and outputs, which "
    "is more work where there are as many queries as keys",
    ideal="no key or value of a head is made: queries and outputs go through their projections instead, and latents "
    "are read as they are stored, as many as in the released form.",
)
