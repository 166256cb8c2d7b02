"""Memory and decoding in documents: layers and models at a few contexts, by the accounts of bench.macs --columns."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

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
CONTEXTS = "d_m=512 T=128,1024"
TRANSLATION = ("transformer-base", "transformer-big", "moa-8K8E128D", "moa-16K32E256D")
LANGUAGE = ("llm-s", "moh-llm-s-75", "llama3-8b", "moh-llama3-8b")
DECODING = ("kv_token_bytes", "kv_bytes", "decode_macs", "decode_bytes", "decode_intensity")
GENERATION = ("generate_macs", "generate_bytes", "training_macs")
TRAINING = ("training_macs", "peak_forward_bytes", "peak_training_bytes")


CLOSED = "--counter closed-form --columns"
COMMAND = " ".join((f"python -m bench.macs --grid '{LAYERS['MoA 8K8E128D']} {CONTEXTS}'", CLOSED, *DECODING, *TRAINING))
COMMAND_OF_MODELS = " ".join(
    ("python -m bench.macs --preset", *LANGUAGE, "--seq-len 2048", CLOSED, *DECODING, *GENERATION)
)


def layers(facts: Facts) -> str:
    """Attention layers of width 512, one sequence."""
    names = (*DECODING, *TRAINING)
    rows = [
        {**row, "layer": name + row["form"]}
        for name, sizes in LAYERS.items()
        for row in facts.layer_accounts(f"{sizes} {CONTEXTS}", names)
    ]
    rows.sort(key=lambda row: row["T"])
    accounts = facts.account_columns(names)
    first = [Column("layer", "layer"), Column("T", "T", kind="int")]
    shown = [markdown.table([*first, *facts.account_columns(part)], rows) for part in (DECODING, TRAINING)]
    about = (
        f"One layer, d_m = 512, one sequence, {facts.element_bytes} bytes per element; T tokens are stored after the "
        "decode step; T is the input of forward and training step. Bytes of a step: every used weight, every stored "
        "key and value that is read, and the new ones, once each. Training: forward and backward, without the "
        "optimiser. Peak bytes: what the reference implementation allocates beside inputs and parameters, without "
        "masks. MoH uses 6 of 8 heads: as released every head is computed; ideal, nothing is computed or read of a "
        "head for a token that does not select it, and keys and values of all heads are stored all the same; its peak "
        "is that of the reference, which gathers weights, keys and values for each row, as MoA's gathers weights."
    )
    return "\n\n".join([about, *shown, *_dashes(rows, accounts), _reading(rows)])


def _dashes(rows: Sequence[Mapping[str, Any]], accounts: Sequence[Column]) -> list[str]:
    """Why cells have dashes: a sentence for each reason."""
    heads = {c.key: c.head.replace("\n", " ") + (" bytes" if c.unit else "") for c in accounts}
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in rows:
        for name, why in row["missing"].items():
            columns, those = found.setdefault(why, ({}, {}))
            # a dict keeps the order, and each but once
            columns[heads[name]] = those[row["layer"]] = None
    return [f"Dashes, {'; '.join(columns)} of {'; '.join(those)}: {why}." for why, (columns, those) in found.items()]


def _reading(rows: Sequence[Mapping[str, Any]]) -> str:
    # rounded up: nothing may lie above it
    highest = ceil(100 * max(row["decode_intensity"] for row in rows)) / 100
    most, least = (choose(rows, key=lambda row: row["kv_token_bytes"]) for choose in (max, min))
    return (
        f"No decode step here does more than {highest:.2f} MACs per byte, so each is bound by memory on any device "
        f"whose peak MACs per second exceed {highest:.2f} times its bytes per second. A token costs "
        f"{most['kv_token_bytes']:,} bytes of cache in {most['layer']} and {least['kv_token_bytes']:,} in "
        f"{least['layer']}."
    )


def models(facts: Facts) -> str:
    """Models that decode: translation models as many tokens as they read, language models a full context."""
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
        parts.append(f"Whole models, one sequence, {about}.")
        parts += [markdown.rows_of(facts.model_accounts(names, length, shown)) for shown in (DECODING, GENERATION)]
    return "\n\n".join(parts)
