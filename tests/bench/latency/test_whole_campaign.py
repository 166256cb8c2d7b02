"""Every case of the GPU campaign runs through on the fake device, with few tokens and models of few layers."""

import pytest

from headcount.bench import records
from headcount.bench.latency import gates, implementations, schedule, timing_cases
from headcount.bench.latency.__main__ import main
from headcount.models.configs.presets import PRESETS, preset

DEPTH = 2
DEPTHS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
LACKING = "ragged"
"""An implementation whose core has no kernel for the CPU, on which the fake device computes."""

pytestmark = pytest.mark.nightly


def shallow_preset(name, overrides=None):
    """Return a preset of DEPTH layers, the last ones, and of few words; a stage of an image's model has one layer."""
    fields = {}
    for field, value in PRESETS[name].items():
        if field in DEPTHS:
            fields[field] = min(value, DEPTH)
        elif field == "depths":
            fields[field] = (1,) * len(value)
        elif field == "vocab_size":
            fields[field] = 97
        elif isinstance(value, tuple) and "num_layers" in PRESETS[name]:
            fields[field] = value[-DEPTH:]
    return preset(name, fields)


@pytest.mark.parametrize("part", schedule.read_parts())
def test_part_runs_through(part, device, quick, tmp_path, monkeypatch):
    for case in schedule.campaign_cases():
        # the names of dense models are those of whole models, and remembered
        case.impls()
    for module in (implementations, timing_cases, schedule):
        monkeypatch.setattr(module, "preset", shallow_preset)
    monkeypatch.setattr(gates, "SHAPES", ((33, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert")))
    main(["campaign", "--part", part, "--out-dir", str(tmp_path), "--tokens", "64", "--blocks", "2"])
    found, problems = records.read(tmp_path / "latency.jsonl")
    assert problems == []
    for record in found:
        wanted = records.AGREES if part == "checks" else "timed"
        assert record["status"] == wanted or record["implementation"] == LACKING, record["cell"]
    cells = {record["cell"] for record in found}
    if part == "checks":
        assert len(cells) == len(gates.LAYERS) * 2 * 3 * 2
    else:
        assert len(cells) == len({case.key for case in schedule.part_cases(part, tokens=64)})
    if part == "models":
        assert all(record["to_dense"] for record in found if record["role"] == "subject" and record["wall_ms"])
