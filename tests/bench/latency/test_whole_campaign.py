"""Every case of the GPU campaign runs through on the fake device, with few tokens and small models."""

import pytest

from headcount.bench import records
from headcount.bench.latency import gates, implementations, schedule
from headcount.bench.latency.__main__ import main
from headcount.models.configs.presets import PRESETS, preset

SMALL = {"num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 97, "d_ff": 64}
"""Sizes of models, whose attention keeps its own."""
LACKING = "ragged"
"""An implementation whose core has no kernel for the CPU, on which the fake device computes."""

pytestmark = pytest.mark.nightly


def shallow_preset(name, overrides=None):
    """Return a preset with its last layer, or one layer in each stage, and with SMALL sizes."""
    fields = {}
    for field, value in PRESETS[name].items():
        if field == "depths":
            fields[field] = (1,) * len(value)
        elif isinstance(value, tuple) and "num_layers" in PRESETS[name]:
            fields[field] = value[-1:]
        elif field in SMALL:
            fields[field] = SMALL[field]
    return preset(name, fields)


@pytest.mark.parametrize("part", schedule.read_parts())
def test_part_runs_through(part, fake_device, quick, tmp_path, monkeypatch):
    for case in schedule.campaign_cases():
        # the names of dense models are those of whole models, and remembered
        case.impls()
    for module in (implementations, schedule):
        monkeypatch.setattr(module, "preset", shallow_preset)
    monkeypatch.setattr(gates, "SHAPES", ((33, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert")))
    main(["campaign", "--part", part, "--out-dir", str(tmp_path), "--tokens", "64", "--blocks", "2"])
    found, problems = records.read(tmp_path / "latency.jsonl")
    assert problems == []
    for record in found:
        wanted = records.AGREES if part == "checks" else "timed"
        assert record.status == wanted or record.implementation == LACKING, record.cell
    cells = {record.cell for record in found}
    if part == "checks":
        assert len(cells) == len(gates.LAYERS) * 2 * 3 * 2
    else:
        assert len(cells) == len({case.key for case in schedule.part_cases(part, tokens=64)})
    if part == "models":
        assert all(record.to_dense for record in found if record.role == "subject" and record.wall_ms)
