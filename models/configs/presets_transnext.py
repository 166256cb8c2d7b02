"""TransNeXt and the models of MoH on it (MoH-ViT), by name. Importable without torch."""

from typing import Any


def _backbone(width: int, depths: tuple[int, ...], **delta) -> dict[str, Any]:
    """Widths that double from stage to stage, with heads of width 24."""
    widths = tuple(width * 2**i for i in range(4))
    return {
        "model": "transnext",
        "attention": "aggregated",
        "d_model": widths,
        "num_heads": tuple(w // 24 for w in widths),
        "depths": depths,
        "mlp_ratio": (8, 8, 4, 4),
        "pool_ratio": (8, 4, 2, 1),
        **delta,
    }


_SIZES = {
    "micro": _backbone(48, (2, 2, 15, 2)),
    "tiny": _backbone(72, (2, 2, 15, 2)),
    "small": _backbone(72, (5, 5, 22, 5)),
    "base": _backbone(96, (5, 5, 23, 5)),
}
TRANSNEXT_PRESETS: dict[str, dict[str, Any]] = {f"transnext-{size}": fields for size, fields in _SIZES.items()}
for _size, _fields in _SIZES.items():
    # fine-tuned at 384 x 384, after 224 x 224
    TRANSNEXT_PRESETS[f"transnext-{_size}-384"] = {**_fields, "image_size": 384, "pretrained_size": 224}
TRANSNEXT_PRESETS["transnext-micro-aaaa-256"] = {
    **_SIZES["micro"],
    "image_size": 256,
    "pool_ratio": (16, 8, 4, 2),
}
for _name, _size, _shared, _routed in (
    ("s-80", "small", (3, 6, 3, 8), (0, 0, 6, 12)),
    ("s-75", "small", (3, 6, 3, 4), (0, 0, 6, 12)),
    ("b-75", "base", (4, 8, 4, 5), (0, 0, 8, 16)),
    ("b-50", "base", (2, 2, 2, 4), (2, 4, 6, 8)),
):
    TRANSNEXT_PRESETS[f"moh-vit-{_name}"] = {
        **_SIZES[_size],
        "attention": "moh_aggregated",
        "num_shared_heads": _shared,
        "top_k": _routed,
    }
