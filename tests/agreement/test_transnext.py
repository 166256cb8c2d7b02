"""TransNeXt and MoH-ViT: the closed form against figures of the authors' code, and the largest model counted."""

import pytest

from headcount.bench.case import Case
from headcount.bench.counting.count import count
from headcount.formulas import conventions
from headcount.formulas.published.tables import load

FIXTURES = {  # parameters and multiply-accumulates that torch counted on the authors' code
    "transnext-micro": (12_809_304, 2_648_551_168),
    "transnext-micro-384": (12_809_304, 8_393_294_848),
    "transnext-tiny": (28_258_960, 5_711_069_568),
    "transnext-micro-aaaa-256": (13_114_008, 3_325_754_368),
}


@pytest.mark.parametrize("name", FIXTURES)
def test_authors_models(name):
    form = Case.of(name).ledger
    assert (form.params, form.macs) == FIXTURES[name]


def test_model_with_one_shared_head():
    heads = dict(attention="moh_aggregated", num_shared_heads=(2, 1, 3, 4), top_k=(0, 2, 2, 6))
    case = Case.of("transnext-micro", heads)
    assert case.ledger.params == case.ideal_ledger.params == 12_853_080
    assert (case.ledger.macs, case.ideal_ledger.macs) == (2_656_228_096, 2_524_332_640)


BLOCKS = {  # of the presets' stages: parameters dense and routed, MACs dense, released, ideal
    ("small", "s-75", 0): (118_188, 118_404, 408_656_512, 409_333_888, 409_333_888),
    ("small", "s-75", 2): (1_101_744, 1_105_776, 232_726_144, 233_516_416, 223_623_904),
    ("small", "s-75", 3): (4_019_376, 4_034_352, 200_777_344, 201_511_168, 189_751_168),
    ("base", "b-50", 0): (205_456, 206_032, 693_141_504, 694_947_840, 694_947_840),
    ("base", "b-50", 2): (1_947_712, 1_954_624, 407_612_928, 408_967_680, 375_362_304),
}


@pytest.mark.parametrize("size, routed, stage", BLOCKS)
def test_one_block(size, routed, stage):
    dense, moh_case = (Case.of(name, {"depths": (1, 1, 1, 1)}) for name in (f"transnext-{size}", f"moh-vit-{routed}"))
    forms = dense.ledger, moh_case.ledger, moh_case.ideal_ledger
    dense, released, ideal = (form.select(lambda e: e.path.startswith(f"stages.{stage}.blocks")) for form in forms)
    found = (dense.params, released.params, dense.macs, released.macs, ideal.macs)
    assert found == BLOCKS[size, routed, stage]
    assert ideal.params == released.params


@pytest.mark.parametrize("row", load("transnext").rows, ids=lambda row: row.target)
def test_table_convention_is_fvcores(row):
    # one block of each stage has every operation of the model
    case = Case.of(row.target, {"depths": (1, 1, 1, 1)})
    (tool,) = count(case, ["fvcore"], device="meta").tools
    assert tool.macs == case.ledger.total_under(conventions.CONVENTIONS["exact_and_norms"])
