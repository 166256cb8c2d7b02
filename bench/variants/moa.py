"""Capabilities of mixture of attention heads: grids, searches and timing. Importable without torch."""

from headcount.bench.variants.variant import FEW, WIDTH, Grid, Letter, Printed, Routed, Search, Variant, make_dense
from headcount.formulas import moa
from headcount.models.configs.mha import MultiHeadAttentionConfig

HEAD_DIM = 64
"""Head width of the MHA of the same model width, as in the paper's models."""
WIDE = 4096
"""An expert's width that every usual number of key/value heads divides into even heads."""


def _macs_eq18(config, T: int, S: int) -> int | None:
    return moa.macs_eq18(T=T, K=config.top_k, D=config.head_dim, d_m=config.d_model) if T == S else None


def _baselines(config) -> dict[str, MultiHeadAttentionConfig]:
    d_model, g = config.d_model, config.num_kv_heads
    # one head of a model that is narrower than the paper's heads
    heads = max(1, d_model // HEAD_DIM)
    return {
        "mqa": make_dense(d_model, config.top_k * g, config.kv_head_dim, g),
        "mha": make_dense(d_model, heads, min(HEAD_DIM, d_model)),
        "mha-inner": VARIANT.dense(config),
    }


VARIANT = Variant(
    name="moa",
    label="MoA",
    grid=Grid(("K", "E", "D"), ("K", "E", "D")),
    dense=lambda config: make_dense(config.d_model, config.top_k * config.num_kv_heads, config.kv_head_dim),
    printed=Printed("Eq. 18", _macs_eq18),
    search=Search(
        "moa-8K8E128D",
        {"K": 1, "E": 1, "D": WIDE},
        {
            "K": Letter(tuple(k for k in FEW if k <= 32), range(1, 33), "1, 2 or a multiple of 4"),
            "E": Letter(tuple(range(8, 129, 8)), range(1, 129), "a multiple of 8"),
            "D": WIDTH,
        },
        ("K", "E"),
        lambda sizes, _: {"K <= E": sizes["K"] <= sizes["E"]},
    ),
    baselines=_baselines,
    routed=Routed(
        "expert",
        "experts",
        "A share is an expert's part of all choices of its layer; every token makes K of them. Balanced is 100 / E.",
        "MACs: the query and output projection and the core of the tokens that chose the expert.",
        used="K",
        active=lambda config: config.top_k,
        sizes=("K", "E"),
    ),
)
