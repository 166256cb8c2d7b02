"""Closed forms of whole models against sizes written out here and against figures of the authors' code."""

import pytest

from headcount.bench.case import Case, ideal_form, ledger_of, resolve_lengths
from headcount.formulas import conventions, moh
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import preset
from tests.cases import MODEL_FIELDS, MODEL_LENGTHS

B, S, T = 3, 17, 13
"""Batch, source or sequence, and target length of MODEL_LENGTHS."""
F, D = 29, 22
"""Inner width of feed-forward blocks and model width of all cases but DiT's."""
SIZES = {
    # gates of 3 encoder layers and of 2 decoder layers twice; residuals; scaled embeddings with positions
    ("translation-moa", "elementwise"): (3 * S + 2 * 2 * T) * B * 3 * 5 + (3 * 2 * S + 2 * 3 * T + 2 * (S + T)) * B * D,
    ("masked-mha", "elementwise"): B * S * D + 3 * 2 * B * S * D,
    ("masked-mha", "bias"): 3 * B * S * (4 * D + F + D) + B * S * D + B * S * 41,
    ("llama-gqa", "elementwise"): 3 * B * S * (F + 2 * D),
    ("llama-gqa", "rms_norm"): (3 * 2 + 1) * B * S * D,
    ("llama-gqa", "rope"): 3 * B * S * (6 + 2) * 10,
    ("llama-gqa", "bias"): 0,
    # per block two modulations and two gated residuals of two operations each; table, label, final modulation
    ("dit", "elementwise"): 4 * 8 * B * 25 * 28 + B * 25 * 28 + B * 28 + 2 * B * 25 * 28,
}
"""Elements of the operations that no counter counts, by case and kind."""


@pytest.mark.parametrize("case, kind", SIZES)
def test_sizes_beside_products(case, kind):
    config = make_config(MODEL_FIELDS[case])
    form = ledger_of(config, {name: MODEL_LENGTHS[name] for name in config.lengths})
    assert form.group(lambda entry: entry.kind, "size").get(kind, 0) == SIZES[case, kind]


def test_mae_7_in_both_causal_gates():
    """MAE-7 has 12 such gates. Each costs 133,120 MACs for every token instead of once for the sequence."""
    memory, running = (Case.of("mae-7", {"causal_gate": gate}).ledger for gate in ("memory", "running"))
    assert memory.macs == 608_481_280 and memory.total_under(conventions.projections) == 606_638_080
    assert running.macs - memory.macs == 12 * 133_120 * 9 == 14_376_960
    assert memory.params == running.params == 62_923_408


def test_parameters_of_released_translation_model():
    assert Case.of("moa-8K8E128D").ledger.params == 62_918_656


@pytest.mark.parametrize(
    "name, macs",  # of every linear layer, from the widths of Tables 5 and 6
    [
        ("transformer-base", 604_241_920),
        ("transformer-big", 2_089_287_680),
        ("admin-18L-18L", 1_485_045_760),
        ("admin-60L-12L", 2_554_593_280),
    ],
)
def test_linear_layers_of_baselines(name, macs):
    assert Case.of(name).ledger.total_under(lambda e: e.kind == "linear") == macs


@pytest.mark.parametrize(
    "name, heads",  # of all heads of all layers, from the table of s and r per layer
    [
        ("moh-dit-s2-90", 8 * 5 + 4 * 6),
        ("moh-dit-s2-75", 2 * 3 + 4 * 4 + 4 * 5 + 2 * 6),
        ("moh-dit-b2-90", 5 * 10 + 5 * 11 + 2 * 12),
        ("moh-dit-b2-75", 2 * 6 + 8 * 9 + 2 * 12),
        ("moh-dit-l2-90", 8 * 8 + 8 * 16 + 8 * 19),
        ("moh-dit-l2-75", 8 * 8 + 8 * 12 + 8 * 16),
        ("moh-dit-xl2-90", 9 * 8 + 10 * 16 + 9 * 19),
        ("moh-dit-xl2-75", 9 * 8 + 10 * 12 + 9 * 16),
        ("moh-llm-s-75", 12 * 9),
        ("moh-llm-b-50", 24 * 8),
        ("moh-llama3-8b", 32 * 24),
        ("moh-vit-s-80", 343),
        ("moh-vit-s-75", 323),
        ("moh-vit-b-75", 441),
        ("moh-vit-b-50", 294),
    ],
)
def test_active_heads_of_presets(name, heads):
    config = preset(name)
    lengths = resolve_lengths(config, {})
    released, ideal = ledger_of(config, lengths), ledger_of(ideal_form(config), lengths)
    total = sum(layer.num_heads for layer in config.layers)
    assert moh.activated_percent(released, ideal) * total == 100 * heads
    # weights by work have no effect where every head costs the same
    assert "vit" in name or moh.activated_macs_percent(released, ideal) == moh.activated_percent(released, ideal)
