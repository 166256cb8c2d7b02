"""Memory and decoding in documents: layers and models at a few contexts, from bench.macs --columns."""

import json
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown, results

LAYERS = {
    "MHA 8 heads": "h=8 d_h=64",
    "GQA 8 heads, 2 key/value": "h=8 d_h=64 g=2",
    "MQA 8 heads": "h=8 d_h=64 g=1",
    "MoA 8K8E128D": "K=8 E=8 D=128",
    "MoA 8K32E64D": "K=8 E=32 D=64",
    "MoA 16K32E256D": "K=16 E=32 D=256",
    "MoH 75 %": "h=8 s=2 r=4",
    "MoH 75 %, 2 key/value": "h=8 s=2 r=4 g=2",
}
CONTEXTS = "T=128,1024"
TRANSLATION = ("transformer-base", "transformer-big", "moa-8K8E128D", "moa-16K32E256D")
LANGUAGE = ("llm-s", "moh-llm-s-75", "llama3-8b", "moh-llama3-8b")
DECODING = ("kv_token_bytes", "kv_bytes", "decode_macs", "decode_bytes", "decode_intensity")
OF_MODELS = (*DECODING, "generate_macs", "generate_bytes", "training_macs")
TRAINING = ("training_macs", "peak_forward_bytes", "peak_training_bytes")
IDEAL = "_ideal"
"""What a key of bench.macs ends in that is of the form which skips unselected heads."""
HEADS = {
    "kv_token_bytes": "cache per token, bytes",
    "kv_bytes": "cache, bytes",
    "decode_macs": "decode step, MACs",
    "decode_bytes": "decode step, bytes",
    "decode_intensity": "MACs per byte",
    "generate_macs": "generation, MACs",
    "generate_bytes": "generation, bytes",
    "training_macs": "training step, MACs",
    "peak_forward_bytes": "forward, peak bytes",
    "peak_training_bytes": "training step, peak bytes",
}


@cache
def _asked(*argv: str) -> dict[str, Any]:
    argv = (*argv, "--element-bytes", "4", "--counter", "closed-form", "--format", "json")
    return json.loads(results.command("bench.macs", *argv))


def layers() -> str:
    """Attention layers of width 512, one sequence, float32."""
    rows = []
    for name, sizes in LAYERS.items():
        found = _asked("--grid", f"{sizes} d_m=512 {CONTEXTS}", "--columns", *DECODING, *TRAINING)
        # MoH has a record of each form at a point; the first has the values of both
        for row in (row for row in found["tables"][0]["rows"] if "form" not in row):
            rows += [{"T": row["point"]["T"], **form, "layer": name + form["form"]} for form in _forms(row)]
    rows.sort(key=lambda row: row["T"])
    columns = [Column("layer", "layer"), Column("T", "T", kind="int"), *_columns((*DECODING, *TRAINING))]
    about = (
        "One layer, d_m = 512, one sequence, 4 bytes per element; T tokens are stored after the decode step; T is "
        "the input of forward and training step. Bytes of a step: every used weight, every stored key and value "
        "that is read, and the new ones, once each. Training: forward and backward, without the optimiser. Peak "
        "bytes: what the reference implementation allocates beside inputs and parameters, without masks. MoH uses "
        "6 of 8 heads: as released every head is computed; ideal, nothing is computed or read of a head for a token "
        "that does not select it, and keys and values of all heads are stored all the same; its peak is that of the "
        "reference, which gathers weights, keys and values for each row, as MoA's gathers weights. Others: "
        "`python -m bench.macs --grid … --columns …`."
    )
    return "\n\n".join([about, markdown.table(columns, rows), *_dashes(rows, "layer"), _reading(rows)])


def _forms(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A grid's row, and where there is one the row of its ideal form."""
    released, ideal = _split(row)
    if not ideal:
        return [{**row, "form": ""}]
    missing, missing_ideal = _split(row["missing"])
    released |= {"form": ", as released", "missing": missing}
    return [released, {**released, **ideal, "form": ", ideal", "missing": missing_ideal}]


def _split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is said of a form as released, and under the same names of the ideal one."""
    released = {name: value for name, value in values.items() if not name.endswith(IDEAL)}
    return released, {name.removesuffix(IDEAL): values[name] for name in values.keys() - released.keys()}


def _dashes(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    """Why cells have dashes: a sentence for each reason."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in rows:
        for name, why in row["missing"].items():
            columns, those = found.setdefault(why, ({}, {}))
            # a dict keeps the order, and each but once
            columns[HEADS[name]] = those[row[key]] = None
    return [f"Dashes, {'; '.join(columns)} of {'; '.join(those)}: {why}." for why, (columns, those) in found.items()]


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    # rounded up: nothing may lie above it
    highest = ceil(100 * max(row["decode_intensity"] for row in rows)) / 100
    most, least = (choose(rows, key=lambda row: row["kv_token_bytes"]) for choose in (max, min))
    return (
        f"No decode step here does more than {highest:.2f} MACs per byte, so each is bound by memory on any device "
        f"whose peak MACs per second exceed {highest:.2f} times its bytes per second. A token costs "
        f"{most['kv_token_bytes']:,} bytes of cache in {most['layer']} and {least['kv_token_bytes']:,} in "
        f"{least['layer']}."
    )


def models() -> str:
    """Models that decode: translation models as many tokens as they read, language models a full context."""
    columns = [Column("model", "model"), *_columns(OF_MODELS)]
    parts = []
    for names, length, about in (
        (TRANSLATION, 128, "128 source tokens, 128 generated; generation holds the encoder's pass, in MACs"),
        (
            LANGUAGE,
            2048,
            "2,048 tokens generated into an empty cache; MoH as released, and ideal; moh-llama3-8b has a larger "
            "vocabulary than llama3-8b",
        ),
    ):
        found = _asked("--preset", *names, "--seq-len", str(length), "--columns", *OF_MODELS)
        (rows,) = (table["rows"] for table in found["tables"] if table["name"] == "memory")
        rows = [{"model": row["preset"] + (", ideal" if row["form"] else ""), **row} for row in rows]
        parts.append(f"Whole models, one sequence, {about}.\n\n{markdown.table(columns, rows)}")
    return "\n\n".join(parts)


def _columns(names: Sequence[str]) -> list[Column]:
    fixed = {"kind": "fixed", "digits": 3}
    return [Column(name, HEADS[name], **(fixed if name == "decode_intensity" else {"kind": "int"})) for name in names]
