"""Compute costs of the papers' layers, models and searches that several pages and plots show."""

from fractions import Fraction
from math import log
from typing import Any

from headcount.bench.macs.published import ModelRow
from headcount.formulas import conventions
from headcount.formulas.ledger import Ledger
from headcount.formulas.published import sentences
from headcount.formulas.published.claims import Rows, load_departures
from headcount.formulas.published.expressions import relation
from headcount.reports.facts import COUNTED, Facts, values_of

BIG, TRANSFORMER_BIG = "moa-16K32E256D", "transformer-big"
MASKED_LM, LLM, ADMIN = "mlm-moa-8K8E128D", "moh-llm-s-75", "admin-18L-18L"
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
TRANSLATION = ("transformer-base", "transformer-big", "moa-8K8E128D", "moa-16K32E256D")
LANGUAGE = ("llm-s", "moh-llm-s-75", "llama3-8b", "moh-llama3-8b")
DECODING = ("kv_token_bytes", "kv_bytes", "decode_macs", "decode_bytes", "decode_intensity")
GENERATION = ("generate_macs", "generate_bytes", "training_macs")
TRAINING = ("training_macs", "peak_forward_bytes", "peak_training_bytes")
BUDGETS = {
    "moa": "--match-model transformer-big --attention moa --params 250M --limit 8",
    "moh": "--match-model llm-s --attention moh --match-metric macs kv-bytes --range g=12 d_h=64",
}
"""Arguments of the searches under a budget, by variant."""


def last_crossover(facts: Facts, one: str, other: str) -> int:
    """Return the last crossover S = T of two presets, from which on ``one`` executes more than ``other``. ValueError
    where there is none."""
    forms = {"one": facts.ledger(one), "other": facts.ledger(other)}
    check = Rows(f"{one} against {other}", relation("one <= other"), {})
    length, is_cheaper = list(sentences.results_by_length(check, forms).items())[-1]
    if length == 1 or is_cheaper:
        raise ValueError(f"no length makes {one} dearer than {other}")
    return length


def rated(facts: Facts) -> list[dict[str, Any]]:
    """Return every row with a quality figure, in the tables' order: ``table``, ``row``, ``quality`` by name, exact
    ``macs`` and ``params``, and whether attention is ``routed``."""
    out = []
    for name in facts.of_paper(COUNTED):
        for row in facts.tables[name].rows:
            if row.quality:
                form = facts.ledger(row.target)
                costs = {"macs": form.macs, "params": form.params}
                routed = any(entry.kind == "expert_linear" for entry in form)
                out.append({"table": name, "row": row.name, "quality": row.quality, **costs, "routed": routed})
    return out


def models(facts: Facts) -> list[dict[str, Any]]:
    """Return each printed MoH model with its dense baseline; ``whole`` and ``attention`` in percent of it."""
    found: dict[str, dict[str, Any]] = {}
    for name in (name for name, table in facts.tables.items() if table.column("activated")):
        closed = facts.closed(name)
        for row, values in zip(closed.rows, values_of(closed), strict=True):
            if row.released_macs:
                found.setdefault(row.row, values | _against_baseline(row, facts.ledger(row.preset)))
    return list(found.values())


def _against_baseline(row: ModelRow, form: Ledger) -> dict[str, Any]:
    dense, released, ideal = row.baseline_macs, row.released_macs, row.ideal_macs
    router = form.select(conventions.router)
    # all but attention is the same in the three
    rest = released - form.select(conventions.attention).macs
    return {
        "router_params": router.params,
        "router_macs": router.macs,
        "added": released - dense,
        "saved": dense - ideal,
        "attention": Fraction(100 * (ideal - rest), dense - rest),
        "whole": Fraction(100 * ideal, dense),
    }


def departure_numbers(facts: Facts) -> dict[str, Any]:
    """Return the numbers of the sentences in departures.toml, by the names of their places."""
    big, llm, admin = facts.config(BIG).attention, facts.config(LLM), facts.config(ADMIN)
    heads, alpha = llm.layers[0], big.balance_loss_weight
    column = facts.tables["moa-table2"].column("params")
    (row,) = (row for row in facts.tables["moa-table2"].rows if row.target == MASKED_LM)
    printed = row.printed["params"]
    biased, unbiased = facts.ledger(MASKED_LM).params, facts.ledger(MASKED_LM, bias=False).params
    tokens = facts.data["moa-table6"].entries[0]["tokens"]
    (their_tokens,) = (int(one.theirs) for one in load_departures() if one.what == "tokens of a batch")
    shared = [
        facts.ledger(LLM, num_shared_heads=s, top_k=heads.num_active_heads - s).params
        for s in range(1, heads.num_active_heads)
    ]
    return {
        "big_experts": big.num_experts,
        "even_share": big.top_k / big.num_experts,
        "log_square": log(big.num_experts) ** 2,
        "z_loss": big.z_loss_weight * log(big.num_experts) ** 2,
        "alpha": alpha,
        "tokens": tokens,
        "alpha_per_token": alpha / tokens,
        "noise_percent": 100 * 0.01 / log(2),
        "start": 1 / big.num_experts,
        "biased": biased,
        "unbiased": unbiased,
        "printed_params": printed,
        "biased_text": column.text(biased, printed),
        "unbiased_text": column.text(unbiased, printed),
        "more_tokens": float(Fraction(100 * (their_tokens - tokens), tokens)),
        # two sublayers in an encoder layer, three in a decoder layer
        "admin_vectors": admin.d_model * (2 * admin.num_encoder_layers + 3 * admin.num_decoder_layers),
        "admin_params": facts.ledger(ADMIN).params,
        "released_macs": facts.ledger(LLM).macs,
        "ideal_macs": facts.ledger(LLM, form="ideal").macs,
        "even_gate": 1 / (2 * heads.num_routed_heads),
        "routed_heads": heads.num_routed_heads,
        "llm_layers": len(llm.layers),
        "balance": heads.num_routed_heads / len(llm.layers),
        "least_shared": min(shared),
        "most_shared": max(shared),
        "most_shared_heads": heads.num_active_heads - 1,
        "active_heads": heads.num_active_heads,
        "shared_text": " or ".join(sorted({column.text(size, "186M") for size in shared})),
    }
