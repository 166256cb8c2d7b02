"""Training MACs of whole models: the closed form equals a counted forward and backward."""

import pytest

from headcount.bench.case import Case
from headcount.bench.counting.run import count_contractions
from headcount.bench.trace.record import record
from headcount.formulas.backward import training_macs
from headcount.models.build import build, example_inputs
from tests.cases import WithInputs


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("moh-vit-s-75", {"image_size": 64, "depths": (1, 1, 1, 1)}),
        ("dit-s2", {"num_layers": 2}),
        ("transformer-base", {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 101}),
    ],
)
def test_training_macs_match_count(preset, changes):
    case = Case.of(preset, changes)
    model = build(case.config, device="meta", impl="reference")
    inputs = example_inputs(case.config, case.lengths, device="meta")
    counted = count_contractions(record(WithInputs(model, inputs), (), backward=True))
    assert counted.macs == training_macs(case.ledger)
