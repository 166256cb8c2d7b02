"""The models of the MoH paper (arXiv 2410.11842) and their dense baselines, by name.

Importable without torch.
"""

from typing import Any

_LANGUAGE = {"model": "llama", "attention": "mha", "rope_theta": 10000.0, "vocab_size": 65536, "bias": False}
_LLM = {
    "s": {**_LANGUAGE, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
    "b": {**_LANGUAGE, "d_model": 1536, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}
_LLAMA3_8B = {
    **_LANGUAGE,
    "d_model": 4096,
    "d_ff": 14336,
    "num_layers": 32,
    "num_heads": 32,
    "num_kv_heads": 8,
    "vocab_size": 128256,
    "context_len": 8192,
    "rope_theta": 500000.0,
}
_DIT = {
    size: {
        "model": "dit",
        "attention": "mha",
        "d_model": width,
        "num_layers": depth,
        "num_heads": heads,
        "head_dim": head_dim,
        "patch_size": 2,
        "bias": True,
    }
    for size, width, depth, heads, head_dim in (
        ("s", 384, 12, 6, 64), ("b", 768, 12, 12, 64), ("l", 1024, 24, 16, 64), ("xl", 1152, 28, 16, 72),
    )
}  # fmt: skip


def _runs(*runs: tuple[int, int]) -> tuple[int, ...]:
    """(value, layers) pairs as one value for each layer."""
    return tuple(value for value, layers in runs for _ in range(layers))


def _moh(base: dict[str, Any], shared, top_k, **delta) -> dict[str, Any]:
    return {**base, "attention": "moh", "num_shared_heads": shared, "top_k": top_k, **delta}


MOH_PRESETS: dict[str, dict[str, Any]] = {
    "llm-s": _LLM["s"],
    "llm-b": _LLM["b"],
    "llama3-8b": _LLAMA3_8B,
    # only the sum of shared and routed heads is printed, but for B at 75 %; it alone changes the MACs
    "moh-llm-s-75": _moh(_LLM["s"], 3, 6),
    "moh-llm-s-50": _moh(_LLM["s"], 3, 3),
    "moh-llm-b-75": _moh(_LLM["b"], 4, 8),
    "moh-llm-b-50": _moh(_LLM["b"], 4, 4),
    "moh-llama3-8b": _moh(_LLAMA3_8B, 16, 8, router="query_norm", vocab_size=160896),
}
for _size, _base in _DIT.items():
    MOH_PRESETS[f"dit-{_size}2"] = _base
    MOH_PRESETS[f"dit-{_size}4"] = {**_base, "patch_size": 4}
MOH_PRESETS["dit-xl2-512"] = {**_DIT["xl"], "latent_size": 64}

_WIDENING_L, _WIDENING_XL = _runs((8, 8), (16, 8), (24, 8)), _runs((8, 9), (16, 10), (24, 9))
for _size, _percent, _heads, _shared, _routed in (
    ("s", 90, 6, _runs((3, 8), (6, 4)), _runs((2, 8), (0, 4))),
    ("s", 75, 6, _runs((2, 2), (3, 8), (6, 2)), _runs((1, 6), (2, 4), (0, 2))),
    ("b", 90, 12, _runs((6, 5), (7, 5), (12, 2)), _runs((4, 10), (0, 2))),
    ("b", 75, 12, _runs((4, 2), (6, 8), (12, 2)), _runs((2, 2), (3, 8), (0, 2))),
    ("l", 90, _WIDENING_L, _runs((8, 8), (16, 16)), _runs((0, 16), (3, 8))),
    ("l", 75, _WIDENING_L, _runs((8, 16), (12, 8)), _runs((0, 8), (4, 16))),
    ("xl", 90, _WIDENING_XL, _runs((8, 9), (16, 19)), _runs((0, 19), (3, 9))),
    ("xl", 75, _WIDENING_XL, _runs((8, 9), (10, 10), (14, 9)), _runs((0, 9), (2, 19))),
):  # fmt: skip
    MOH_PRESETS[f"moh-dit-{_size}2-{_percent}"] = _moh(_DIT[_size], _shared, _routed, num_heads=_heads)
