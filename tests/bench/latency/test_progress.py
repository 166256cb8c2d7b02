"""What a run shows while it goes on, and the rows that it ends in."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

from headcount.bench import records
from headcount.bench.latency import clock, session
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.telemetry import Telemetry
from tests.bench.latency.conftest import PEAKS

ARGV = "--layer dense --seq-len 7 --batch-size 2 --blocks 2 --dtype float64 --pass forward".split()


@pytest.fixture(autouse=True)
def small(layers, quick, monkeypatch):
    """Small layers, in no time; no peaks to measure."""
    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", lambda device, dtype: PEAKS)


@pytest.mark.parametrize("place", [[], ["--json", "r.jsonl"], ["--out-dir", "."]])
def test_the_last_line_says_where_records_are(place, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert main([*ARGV, *place]) == 0
    where = {"--json": ", records in r.jsonl", "--out-dir": ", records in latency.jsonl"}[place[0]] if place else ""
    assert re.fullmatch(rf"[\d.]+ s{where}\n", capsys.readouterr().err)


def test_what_is_wrong_with_all_arms_of_a_cell_is_said_of_each(monkeypatch, tmp_path, capsys):
    def none(device, dtype):
        raise ValueError("no clock")

    monkeypatch.setattr("headcount.bench.latency.peaks.measure_peaks", none)
    argv = [*ARGV, "--layer", "some", "--arm", "loop", "--json", str(tmp_path / "r.jsonl")]
    assert main(argv) == 1
    found, _ = records.read(tmp_path / "r.jsonl")
    timed = [(one["arm"], one["status"], one["peaks"]["how"]) for one in found if one["kind"] == "latency"]
    arms = ("some", "mqa-2x16", "mha-1x64", "mha-2x16")
    assert timed == [(arm, "failed: ValueError: no clock", "not measured") for arm in arms]


def test_a_device_that_is_lost_outside_of_an_arm_is_said_of_the_cell(monkeypatch, capsys):
    def gone(*_, **__):
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(clock, "measure_cell", gone)
    monkeypatch.setattr(session, "lost", lambda device: True)
    assert main(ARGV) == 1
    said = "layer dense T7 B2 float64 forward cpu balanced: the cell: failed: RuntimeError: unspecified launch failure"
    assert f": error: {said}; --json PATH lets a run go on in a new process\n" in capsys.readouterr().err


def test_the_command_prints_a_smoke_test_that_names_the_cpu(capsys):
    assert main(ARGV) == 0
    out = capsys.readouterr().out
    assert "CPU wall time on" in out and "2 blocks: a smoke test, not a measurement" in out
    assert "CUDA is not measured here" in out


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
