"""Position tables do not depend on the default dtype."""

import pytest
import torch

from headcount.models.aggregated import coordinates
from headcount.models.configs.aggregated import AggregatedAttentionConfig
from headcount.models.dit import TimestepEmbedding
from headcount.models.encoder_decoder import sinusoidal_positions
from headcount.models.rotary import rotary_table

GRID = AggregatedAttentionConfig(d_model=6, num_heads=2, side=7, pool_ratio=1)
EMBEDDING = TimestepEmbedding(22, 5).double()
TABLES = {
    "sinusoidal": lambda: sinusoidal_positions(7, 13),
    "rotary": lambda: torch.cat(rotary_table(7, 10, 100.0)),
    "rotary-double": lambda: torch.cat(rotary_table(7, 10, 100.0, dtype=torch.float64)),
    "grid": lambda: coordinates(GRID, torch.empty((), dtype=torch.float64)),
    "timesteps": lambda: EMBEDDING(torch.tensor([3, 997])),
}


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# what torch makes of floats while this file is imported is float32
EXPECTED = {name: table() for name, table in TABLES.items()}


@pytest.mark.parametrize("name", TABLES)
def test_tables_ignore_default_dtype(name, doubles):
    found = TABLES[name]()
    assert found.dtype == EXPECTED[name].dtype and torch.equal(found, EXPECTED[name])
