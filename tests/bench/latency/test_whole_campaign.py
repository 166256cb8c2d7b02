"""Every case of the GPU campaign runs through on the fake device, with few tokens and small models and layers."""

import copy
from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.bench.latency import campaign, correctness, gates, implementations
from headcount.bench.latency.__main__ import main
from headcount.models.configs.layers import layer
from headcount.models.configs.presets import PRESETS, preset

SMALL = {"num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 97}
"""Sizes of models; numbers of heads and experts stay."""
IMAGE_SIZE = 64
"""The least side of the images of a model of stages."""
WIDTHS, DIVISOR = ("d_model", "head_dim", "d_ff"), 8
BLOCKS = 2

pytestmark = pytest.mark.nightly


def small_preset(name, overrides=None):
    """Return a preset with its last layer, or one layer in each stage, and with small sizes."""
    given = PRESETS[name]
    fields = {field: size for field, size in SMALL.items() if field in given}
    if "depths" in given:
        fields |= {"depths": (1,) * len(given["depths"]), "image_size": IMAGE_SIZE}
    else:
        fields |= {field: value[-1:] for field, value in given.items() if isinstance(value, tuple)}
    for field in {*WIDTHS} & {*given}:
        value = given[field]
        fields[field] = tuple(width // DIVISOR for width in value) if isinstance(value, tuple) else value // DIVISOR
    return preset(name, fields)


def small_layer(name):
    """Return a narrow layer."""
    config = layer(name)
    return replace(config, d_model=config.d_model // DIVISOR, head_dim=config.head_dim // DIVISOR)


def short_parts():
    """Return the parts of the campaign, whose second measurements are as short as the first."""
    parts = copy.deepcopy(campaign.read_parts())
    for part in parts.values():
        for row in part.get("cases", ()):
            if "blocks" in row:
                row["blocks"] = BLOCKS
    return parts


@pytest.fixture
def small_campaign(fake_device, quick, monkeypatch):
    """Make models, layers and checks small, in float32, which every implementation has on a CPU."""
    for case in campaign.campaign_cases():
        # the names of dense models are those of whole models, and remembered
        case.impls(any_device=True)
    parts = short_parts()
    for module in (implementations, campaign):
        monkeypatch.setattr(module, "preset", small_preset)
    monkeypatch.setattr(implementations, "layer", small_layer)
    monkeypatch.setattr(campaign, "read_parts", lambda: parts)
    monkeypatch.setattr(gates, "SHAPES", ((33, 2, "balanced"), (1, 1, "balanced"), (10, 4, "one-expert")))
    monkeypatch.setattr(gates, "DTYPES", {"cuda": ("float32",)})
    # rounding errors of short sums scatter, so that twice the plain reference's is too little for some
    monkeypatch.setitem(correctness.MIN_BOUND, "float32", correctness.CAP["float32"])


@pytest.mark.parametrize("part", campaign.read_parts())
def test_part_runs_through(part, small_campaign, tmp_path, capsys):
    argv = ["campaign", "--part", part, "--out-dir", str(tmp_path), "--dtype", "float32"]
    assert main([*argv, "--tokens", "64", "--blocks", str(BLOCKS)]) == 0
    if part == "compiled":
        # torch.compile needs a real device
        cases = campaign.part_cases(part, dtype="float32", tokens=64)
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped")]
        assert [line.rpartition(": ")[2] for line in lines] == [case.key for case in cases]
        assert all("implementation compiled needs a real device" in line for line in lines)
        return
    found, problems = records.read(tmp_path / "latency.jsonl")
    assert problems == []
    assert {record.status for record in found} == {records.AGREES if part == "checks" else records.TIMED}
    cells = {record.cell for record in found}
    if part == "checks":
        assert len(cells) == len(gates.LAYERS) * 3 * 2
    else:
        assert cells == {case.key for case in campaign.part_cases(part, dtype="float32", tokens=64)}
    if part == "models":
        assert all(record.to_dense for record in found if record.role == "subject")
