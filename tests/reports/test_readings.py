"""Stored counts of three models: each tool's count is the exact one without what it misses, plus what it adds."""

import pytest

from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.reports.facts import Facts
from tests import readings

FACTS = Facts()
STORED = FACTS.stored_json("readings.json")
LLAMA, VIT, QWEN3 = "LLaMA, 4 layers", "ViT-B/16", "Qwen3-30B-A3B"
# tokens, widths, layers; a patch, 16 x 16 of 3 colours, is as wide as the model
N, W, F, L = 1024, 512, 11008, 4
P, V, G, M = 196, 768, 3072, 12
T, H, A, K, I, B = 128, 2048, 32 * 128, 4 * 128, 768, 48  # noqa: E741
VOCABULARY, PROJECTIONS = 32_000, 2 * H * A + 2 * H * K
# scores and weighted sums, experts, the router
FUSED = {LLAMA: L * 2 * N * N * W, VIT: M * 2 * (P + 1) ** 2 * V, QWEN3: B * 2 * T * T * A}
EXPERTS = {LLAMA: 0, VIT: 0, QWEN3: T * B * 8 * 3 * H * I}
ROUTER = {LLAMA: 0, VIT: 0, QWEN3: T * B * H * 128}
LINEAR = {
    LLAMA: N * (L * (4 * W * W + 3 * W * F) + W * VOCABULARY),
    VIT: P * V * V + (P + 1) * M * (4 * V * V + 2 * V * G) + 2 * V,
    QWEN3: T * (B * PROJECTIONS + H * 151_936),
}
NORMS, BIASES = 25 * (P + 1) * V, P * V + (P + 1) * M * (5 * V + G) + 2
ADDED = {
    ("fvcore", VIT): 5 * NORMS,
    ("thop", VIT): 4 * NORMS,
    ("ptflops, aten", VIT): BIASES,
    ("ptflops", VIT): BIASES + NORMS,
    # activations, and the softmax of the router
    ("ptflops", LLAMA): L * N * F,
    ("ptflops", QWEN3): T * B * (8 * I + 128),
}
"""Elementwise operations that a tool counts."""
PARAMETERS = {
    LLAMA: L * (4 * W * W + 3 * W * F + 2 * W) + W + 2 * W * VOCABULARY,
    VIT: P * (V + 1) * V + M * (4 * V * (V + 1) + 2 * V * G + G + V) + 25 * 2 * V + 2 * (V + 1),
    QWEN3: B * (PROJECTIONS + 2 * H + 2 * 128) + H + 2 * H * 151_936 + ROUTER[QWEN3],
}
"""torchinfo: parameters, for the convolution times its positions, and for the router times T."""


def expected(tool, model):
    """Return the MACs that a tool reports for a model."""
    if tool == "torchinfo":
        return PARAMETERS[model]
    terms = [LINEAR]
    terms += [EXPERTS] if tool == "headcount" else []
    terms += [] if tool in ("thop", "ptflops") else [ROUTER]
    decomposed = tool == "ptflops, aten" and model == QWEN3
    terms += [FUSED] if tool in ("headcount", "FlopCounterMode") or decomposed else []
    return sum(term[model] for term in terms) + ADDED.get((tool, model), 0)


@pytest.mark.parametrize("model", FUSED)
@pytest.mark.parametrize("row", STORED, ids=lambda row: row["tool"])
def test_stored_counts_are_explained(row, model):
    assert row["macs"][model] == expected(row["tool"], model)


def test_every_tool_is_stored():
    assert {row["tool"]: row["misses"] for row in STORED} == {
        tool: misses for tool, (_, misses) in readings.TOOLS.items()
    }
    assert len({(row["torch"], row["transformers"]) for row in STORED}) == 1


def test_stored_audit_has_every_formulation_explained():
    cells = FACTS.audit()
    counted = {formulation.name for formulation in FORMULATIONS}
    assert {cell.spelling for cell in cells} == counted
    for cell in cells:
        assert cell.reason or sum(cause["macs"] for cause in cell.causes) == cell.difference, cell
    assert {cell.error for cell in cells if cell.counter == "headcount" and not cell.reason} == {0}
    # the page of counters and README name one torch
    assert FACTS.audit_versions().startswith(f"torch {STORED[0]['torch']},")
