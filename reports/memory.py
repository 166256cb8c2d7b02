"""Memory and decoding in documents: layers and models at a few contexts, from bench.macs --columns."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from bench.table import Column
from reports import markdown, results

LAYERS = {
    "MHA 8 heads": "h=8 d_h=64",
    "GQA 8 heads, 2 key/value": "h=8 d_h=64 g=2",
    "MQA 8 heads": "h=8 d_h=64 g=1",
    "MoA 8K8E128D": "K=8 E=8 D=128",
    "MoA 8K32E64D": "K=8 E=32 D=64",
    "MoA 16K32E256D": "K=16 E=32 D=256",
}
CONTEXTS = "T=128,1024"
MODELS = ("transformer-base", "transformer-big", "moa-8K8E128D", "moa-16K32E256D")
DECODING = ("kv_token_bytes", "kv_bytes", "decode_macs", "decode_bytes", "decode_intensity")
TRAINING = ("training_macs", "peak_forward_bytes", "peak_training_bytes")
HEADS = {
    "kv_token_bytes": "cache per token, bytes",
    "kv_bytes": "cache, bytes",
    "decode_macs": "decode step, MACs",
    "decode_bytes": "decode step, bytes",
    "decode_intensity": "MACs per byte",
    "generate_macs": "generation, MACs",
    "training_macs": "training step, MACs",
    "peak_forward_bytes": "forward, peak bytes",
    "peak_training_bytes": "training step, peak bytes",
}


@cache
def _asked(*argv: str) -> dict[str, Any]:
    return json.loads(results.command("bench.macs", *argv, "--counter", "closed-form", "--format", "json"))


def layers() -> str:
    """Attention layers of width 512, one sequence, float32."""
    rows = []
    for name, sizes in LAYERS.items():
        found = _asked("--grid", f"{sizes} d_m=512 {CONTEXTS}", "--columns", *DECODING, *TRAINING)
        rows += [{"layer": name, "T": row["point"]["T"], **row} for row in found["tables"][0]["rows"]]
    rows.sort(key=lambda row: row["T"])
    columns = [Column("layer", "layer"), Column("T", "T", kind="int"), *_columns((*DECODING, *TRAINING))]
    about = (
        "One layer, d_m = 512, one sequence, 4 bytes per element; T tokens are stored after the decode step; T is "
        "the input of forward and training step. Bytes of a step: every used weight, every stored key and value "
        "and the new ones, once each. Training: forward and backward, without the optimiser. Peak bytes: what the "
        "reference implementation allocates beside inputs and parameters, without masks; a dash where there is no "
        "schedule. Others: `python -m bench.macs --grid … --columns …`."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}\n\n{_reading(rows)}"


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    highest = max(row["decode_intensity"] for row in rows)
    most, least = (choose(rows, key=lambda row: row["kv_token_bytes"]) for choose in (max, min))
    return (
        f"No decode step here does more than {highest:.2f} MACs per byte, so each is bound by memory on any device "
        f"whose peak MACs per second exceed {highest:.2f} times its bytes per second. A token costs "
        f"{most['kv_token_bytes']:,} bytes of cache in {most['layer']} and {least['kv_token_bytes']:,} in "
        f"{least['layer']}."
    )


def models() -> str:
    """Translation models that decode as many tokens as they read."""
    names = ("kv_token_bytes", "kv_bytes", "decode_macs", "decode_bytes", "decode_intensity", "generate_macs")
    length = 128
    found = _asked("--preset", *MODELS, "--seq-len", str(length), "--columns", *names, "training_macs")
    rows = [t["rows"][0] for t in found["tables"] if t["name"].endswith("-memory")]
    columns = [Column("preset", "model"), *_columns((*names, "training_macs"))]
    return (
        f"Whole models, one sequence, {length} source tokens, {length} generated; generation holds the encoder's "
        f"pass.\n\n{markdown.table(columns, rows)}"
    )


def _columns(names: Sequence[str]) -> list[Column]:
    fixed = {"kind": "fixed", "digits": 3}
    return [Column(name, HEADS[name], **(fixed if name == "decode_intensity" else {"kind": "int"})) for name in names]
