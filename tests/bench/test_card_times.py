"""Times of a model on a card by its closed form."""

import subprocess
import sys

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.card_times import DECODE, FORWARD, PREFILL, TRAINING, kernels_of, table, time_rows
from headcount.bench.case import Case
from headcount.bench.hardware import HARDWARE
from headcount.bench.performance.closed_form import total_macs
from headcount.models.configs.presets import PRESETS

GIVEN = Assumptions()


def rows(name, card="h100", given=GIVEN, **lengths):
    return {row.what: row for row in time_rows(Case.of(name, {}, lengths), HARDWARE[card], given)}


def test_decoder_has_prefill_decode_and_training():
    found = rows("llama3-8b", seq_len=2048, batch_size=8)
    assert list(found) == [PREFILL, DECODE, TRAINING]
    assert all(row.least_ms < row.expected_ms for row in found.values())
    assert found[PREFILL].tokens == 8 * 2048 and found[DECODE].tokens == 8
    assert found[DECODE].tokens_per_s == pytest.approx(8 / found[DECODE].expected_ms * 1000)


def test_mfu_is_of_the_exact_macs():
    case = Case.of("llama3-8b", {}, {"seq_len": 2048})
    row = rows("llama3-8b", seq_len=2048)[TRAINING]
    assert row.mfu == pytest.approx(100 * 3 * case.ledger.macs / (row.expected_ms / 1000 * 989.5e12 / 2))
    assert 30 < row.mfu < 70


@pytest.mark.parametrize(("name", "lengths", "skips"), [
    ("llama3-8b", {"seq_len": 131_072}, True), ("llama3-8b", {"seq_len": 16_384}, True),
    ("moh-vit-s-75", {"batch_size": 4}, False), ("llama3-8b", {"seq_len": 1}, False),
])  # fmt: skip
def test_pairs_that_masks_hide_are_explained(name, lengths, skips):
    found = table(Case.of(name, {}, lengths), HARDWARE["h100"], GIVEN)
    assert any("Kernels skip the pairs that masks hide" in line for line in found.above) == skips
    assert skips or all(row.mfu < 100 for row in found.rows)


def test_kernels_have_all_macs_but_those_of_hidden_pairs():
    """32 layers, 2 sequences, 32 heads 128 wide, twice: of T^2 pairs a causal mask leaves T (T + 1) / 2."""
    T = 16_384
    case = Case.of("llama3-8b", {}, {"seq_len": T, "batch_size": 2})
    hidden = 32 * 2 * 32 * 2 * 128 * (T * T - T * (T + 1) // 2)
    assert case.ledger.macs - total_macs(kernels_of(case, case.ledger, GIVEN).forward()) == hidden


def test_decode_step_is_bound_by_weights():
    one, many = rows("llama3-8b", seq_len=128), rows("llama3-8b", seq_len=128, batch_size=16)
    # 15 GB of weights over 3.35 TB/s
    assert one[DECODE].least_ms > 4.4
    assert many[DECODE].expected_ms < 1.2 * one[DECODE].expected_ms
    narrow = rows("llama3-8b", given=Assumptions(weight_bytes=1), seq_len=128)
    assert narrow[DECODE].expected_ms < 0.7 * one[DECODE].expected_ms
    # training keeps its own type
    assert narrow[TRAINING].expected_ms == one[TRAINING].expected_ms


def test_model_without_decode_has_a_forward_pass():
    assert list(rows("moh-vit-s-75", batch_size=4)) == [FORWARD, TRAINING]
    assert list(rows("dit-s2")) == [FORWARD, TRAINING]


def test_context_is_read_by_prefill_and_decode():
    short, long = (rows("llama3-8b", given=Assumptions(context=tokens), seq_len=128) for tokens in (128, 8192))
    assert long[PREFILL].tokens == 8192 and long[DECODE].expected_ms > short[DECODE].expected_ms


def test_other_card_says_that_nothing_was_measured():
    case = Case.of("llama3-8b", {}, {"seq_len": 128})
    assert "which no measurement there tests" in " ".join(table(case, HARDWARE["a100"], GIVEN).above)
    assert "which no measurement there tests" not in " ".join(table(case, HARDWARE["h200"], GIVEN).above)


def test_presets_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from headcount.bench.card_times import time_rows\n"
        "from headcount.bench.case import Case\n"
        "from headcount.bench.accounts import Assumptions\n"
        "from headcount.bench.hardware import HARDWARE\n"
        "print(len(time_rows(Case.of('llama3-8b'), HARDWARE['h200'], Assumptions())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_every_preset_has_times():
    for name in PRESETS:
        assert time_rows(Case.of(name), HARDWARE["h100"], GIVEN), name
