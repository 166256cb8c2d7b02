"""The progress bar and the telemetry of a case."""

import json
import sys
from types import SimpleNamespace

import pytest

from headcount.bench.latency import session
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.telemetry import Telemetry
from tests.bench.latency.conftest import PEAKS

CASE = "layer dense T7 B2 float64 forward cpu balanced"
ARGV = "--layer dense --seq-len 7 --batch-size 2 --blocks 2 --dtype float64 --pass forward".split()


@pytest.fixture(autouse=True)
def small(layers, quick, monkeypatch):
    """Small layers and short blocks; no peaks are measured."""
    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", lambda device, dtype: PEAKS)


@pytest.mark.parametrize("bar", [True, False], ids=["tqdm", "no tqdm"])
def test_bar_advances_by_block_and_telemetry_is_recorded(bar, monkeypatch, tmp_path):
    bars, watts = [], iter((7_000, 5_000))

    class Bar:
        def __init__(self, total, **how):
            self.total, self.done, self.how = total, 0, how
            bars.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.closed = True

        def update(self):
            self.done += 1

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar) if bar else None)
    read = {"power_mw": watts.__next__, "sm_clock_mhz": iter((1000, 500)).__next__}
    monkeypatch.setattr(session, "Telemetry", lambda device: Telemetry(device, read))
    path = tmp_path / "rows.json"
    assert main([*ARGV, "--format", "json", "--out", str(path)]) == 0
    (row,) = (row for table in json.loads(path.read_text())["tables"] for row in table["rows"])
    assert (row["layer"], row["arms_in_cell"]) == ("dense", 1)
    assert (row["telemetry"]["samples"], row["telemetry"]["power_mw"]) == (2, {"min": 5_000, "max": 7_000})
    # of a median of 750 MHz
    assert row["telemetry"]["slow_blocks"] == [1]
    assert [(one.total, one.done, one.closed, one.how["desc"]) for one in bars] == [(2, 2, True, f"1/1 {CASE}")] * bar
