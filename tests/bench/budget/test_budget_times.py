"""``headcount budget --on``: an expected time for each row, the fastest first, and rows that other commands take."""

import json

import numpy as np
import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget import fit, search
from headcount.bench.budget.__main__ import main
from headcount.bench.card_times import time_rows
from headcount.bench.case import Case
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.__main__ import main as latency
from headcount.models.configs.targets import read

BUDGET = "--macs 1G:1.2G --params 200M --on h100-sxm"


def tables(run, words, capsys):
    assert run([*words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["tables"]


@pytest.fixture
def rows(capsys):
    def found(line):
        return tables(main, line.split(), capsys)[0]["rows"]

    return found


def expected(target):
    name, fields, lengths = read(target)
    (row,) = time_rows(Case.of(name, fields, lengths), HARDWARE["h100"], Assumptions(), passes=["forward pass"])
    return row.expected_ms


def test_rows_are_ordered_by_expected_time(rows):
    found = rows(f"{BUDGET} --limit 8 --range K=4:16:4 E=8:32:8")
    times = [row["expected_ms"] for row in found]
    assert len(found) > 3 and times == sorted(times)
    for row in found:
        assert row["expected_ms"] == pytest.approx(expected(row["target"]))


def test_first_row_is_the_fastest_of_all(rows, monkeypatch):
    seen = []
    before = search.expected_ms
    monkeypatch.setattr(search, "expected_ms", lambda *args: seen.append(before(*args)) or seen[-1])
    found = rows(f"{BUDGET} --limit 3 --range K=4:16:4 E=8:32:8")
    assert found[0]["expected_ms"] == pytest.approx(np.min(seen[0])) and len(seen[0]) > 20


def test_sort_comes_before_time(rows):
    found = rows(f"{BUDGET} --limit 4 --range K=4:16:4 E=8:32:8 --sort macs")
    macs = [row["numbers"]["macs"] for row in found]
    assert macs == sorted(macs) and all(row["expected_ms"] for row in found)


@pytest.mark.parametrize("line", [
    f"{BUDGET} --limit 1 --range K=4:16:4 E=8:32:8", "--match-model dit-s2 --attention moh --limit 1 --range s=1:2",
])  # fmt: skip
def test_row_runs_in_other_commands(line, rows, capsys):
    (row,) = rows(line)
    fit.main([row["target"], "--on", "h100-sxm"])
    assert "Time on NVIDIA H100 SXM" in capsys.readouterr().out
    words = ["--estimate", row["target"], "--on", "h100-sxm", "--pass", "forward"]
    estimated = [one for one in tables(latency, words, capsys)[0]["rows"] if one["expected_us"]]
    assert any(one["layer"] == row["target"] for one in estimated)


def test_too_many_candidates_are_refused(capsys, monkeypatch):
    monkeypatch.setattr(search, "MOST_TIMED", 10)
    assert main(BUDGET.split()) == 2
    assert "--on times 10 at most; give a smaller budget or --range" in capsys.readouterr().err
