"""What a run shows while it goes on, and the rows that it ends in."""

import json
import sys
from types import SimpleNamespace

import pytest

from headcount.bench.latency import session
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.telemetry import Telemetry
from tests.bench.latency.conftest import PEAKS

ARGV = "--layer dense --seq-len 7 --batch-size 2 --blocks 2 --dtype float64 --pass forward".split()


@pytest.fixture(autouse=True)
def small(layers, quick, monkeypatch):
    """Small layers, in no time; no peaks to measure."""
    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", lambda device, dtype: PEAKS)


def test_a_row_stands_for_its_record_and_a_bar_for_the_cells_blocks(monkeypatch, tmp_path):
    bars, watts = [], iter((7_000, 5_000))

    class Bar:
        def __init__(self, total, **_):
            self.total, self.done = total, 0
            bars.append(self)

        def update(self):
            self.done += 1

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(session, "Telemetry", lambda device: Telemetry(device, {"power_mw": watts.__next__}))
    path = tmp_path / "rows.json"
    assert main([*ARGV, "--format", "json", "--out", str(path)]) == 0
    (row,) = (row for table in json.loads(path.read_text())["tables"] for row in table["rows"])
    assert (row["arm"], row["arms_in_cell"]) == ("dense", 1)
    # what was read after each of two blocks
    assert (row["telemetry"]["samples"], row["telemetry"]["power_mw"]) == (2, {"min": 5_000, "max": 7_000})
    assert [(bar.total, bar.done, bar.closed) for bar in bars] == [(2, 2, True)]
