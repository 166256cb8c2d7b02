"""What a run shows while it goes on, and the rows that it ends in."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

from headcount.bench import records
from headcount.bench.latency import clock, session
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.faults import DeviceLost
from headcount.bench.latency.store import Store
from headcount.bench.latency.table import Columns
from headcount.bench.latency.telemetry import Telemetry
from tests.bench.latency.conftest import PEAKS

CELL = "layer dense T7 B2 float64 forward cpu balanced"
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


OUTSIDE = RuntimeError("gone"), True, "the cell: failed: RuntimeError: gone"
INSIDE = DeviceLost("dense fused", "failed: ValueError: gone"), False, "dense fused: failed: ValueError: gone"


@pytest.mark.parametrize("error, lost, said", [OUTSIDE, INSIDE])
def test_a_device_that_is_lost_outside_of_an_arm_is_said_of_the_cell(error, lost, said, monkeypatch, capsys):
    def gone(*_, **__):
        raise error

    monkeypatch.setattr(clock, "measure_cell", gone)
    monkeypatch.setattr(session, "lost", lambda device: lost)
    assert main(ARGV) == 1
    assert f": error: {CELL}: {said}; --json PATH lets a run go on in a new process\n" in capsys.readouterr().err


def test_the_command_prints_a_smoke_test_that_names_the_cpu(capsys):
    assert main(ARGV) == 0
    out = capsys.readouterr().out
    assert "CPU wall time on" in out and "2 blocks: a smoke test, not a measurement" in out
    assert "CUDA is not measured here" in out


@pytest.mark.parametrize("within, left", [(None, ""), (60.0, ", 53 s left"), (5.0, ", 0 s left")])
def test_what_is_still_to_do_is_said_with_the_time_it_is_thought_to_take(within, left, monkeypatch, capsys):
    monkeypatch.setattr(session.order, "seconds", lambda cell, blocks: blocks * cell.seq_len)
    now = iter([100.0, 107.0])
    run = session.Session(Store(None), Columns("cpu"), {}, blocks=2, within=within, now=lambda: next(now))
    cells = [Cell("layer", "dense", length, 3, "float32", "forward", "cpu", "zipf") for length in (5, 7, 11)]
    run.store.done[cells[1].key] = []
    run.announce(cells)
    expected = [f"   10.0 s expected  {cells[0].key}", f"   22.0 s expected  {cells[2].key}"]
    assert capsys.readouterr().err.splitlines() == [*expected, f"   32.0 s expected for 2 cells{left}"]


def test_a_row_stands_for_its_record_and_a_bar_for_the_cells_blocks(monkeypatch, tmp_path):
    bars, watts = [], iter((7_000, 5_000))

    class Bar:
        def __init__(self, total, **how):
            self.total, self.done, self.how = total, 0, how
            bars.append(self)

        def update(self):
            self.done += 1

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    read = {"power_mw": watts.__next__, "sm_clock_mhz": iter((1000, 500)).__next__}
    monkeypatch.setattr(session, "Telemetry", lambda device: Telemetry(device, read))
    path = tmp_path / "rows.json"
    assert main([*ARGV, "--format", "json", "--out", str(path)]) == 0
    (row,) = (row for table in json.loads(path.read_text())["tables"] for row in table["rows"])
    assert (row["arm"], row["arms_in_cell"]) == ("dense", 1)
    # what was read after each of two blocks
    assert (row["telemetry"]["samples"], row["telemetry"]["power_mw"]) == (2, {"min": 5_000, "max": 7_000})
    # of a median of 750 MHz
    assert row["telemetry"]["slow_blocks"] == [1]
    assert [(bar.total, bar.done, bar.closed) for bar in bars] == [(2, 2, True)]
    shown = {"desc": f"1/1 {CELL}", "unit": "block", "leave": False, "disable": None, "file": sys.stderr}
    assert bars[0].how == shown


def test_records_that_are_kept_have_a_place_of_their_device_day_and_commit(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(records, "writable", lambda: tmp_path)
    monkeypatch.setattr(records, "place", lambda *of: asked.append(of) or tmp_path / "r.jsonl")
    assert main([*ARGV, "--record", "--commit", "abc123"]) == 0
    ((folder, device, day, commit),) = asked
    (row,) = (one for one in records.read(tmp_path / "r.jsonl")[0] if one["kind"] == "latency")
    assert (folder, device, commit) == (tmp_path, row["environment"]["device"], "abc123")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", day)
