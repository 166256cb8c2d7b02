"""The cells of the heat map are the audit's: a reading's error, or the reason why there is none."""

from fractions import Fraction

import pytest

from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.bench.macs import audit
from headcount.reports import heat_map

CHOSEN = ("mha-operator", "mha-flex", "vocabulary-tied")


@pytest.fixture(scope="module")
def cells():
    """Three spellings on meta, by spelling and counter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "FORMULATIONS", [s for s in FORMULATIONS if s.name in CHOSEN])
        matrix, _ = audit.sections(["ptflops-pytorch", "fvcore"], "meta")
        made = heat_map.cells(list(matrix.rows))
    assert [(cell.spelling, cell.counter) for cell in made] == [
        (name, counter) for name in sorted(CHOSEN, key=named) for counter in ("headcount", "ptflops-pytorch", "fvcore")
    ]
    return {(cell.spelling, cell.counter): cell for cell in made}


def named(name):
    return [s.name for s in FORMULATIONS].index(name)


def test_an_error_is_a_share_of_the_exact_count(cells):
    cell = cells["mha-operator", "ptflops-pytorch"]
    assert (cell.written, cell.device, cell.exact, cell.difference) == ("@", "meta", 180_672, 154_560)
    assert cell.error == Fraction(15_456_000, 180_672)
    assert sum(cause["macs"] for cause in cell.causes) == 154_560
