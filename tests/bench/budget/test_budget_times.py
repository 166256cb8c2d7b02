"""``headcount budget --on``: an expected time for each row, one of its costs, and rows that other commands take."""

import json
import re

import numpy as np
import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget import fit, search
from headcount.bench.budget.__main__ import main
from headcount.bench.card_times import time_rows
from headcount.bench.case import Case
from headcount.bench.commands.count import main as count
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


def test_rows_are_ordered_as_without_times(rows):
    found = rows(f"{BUDGET} --limit 8 --range K=4:16:4 E=8:32:8")
    order = [(-row["numbers"]["active_params"], -row["numbers"]["params"]) for row in found]
    assert len(found) > 3 and order == sorted(order)
    for row in found:
        assert row["expected_ms"] == pytest.approx(expected(row["target"]))


def test_first_rows_use_the_budget(rows):
    words = "moa:d_m=768,T=2048 --macs 3G --limit 20"
    timed, untimed = rows(f"{words} --on h100-sxm"), rows(words)
    assert timed[0]["target"] == untimed[0]["target"]
    assert timed[0]["numbers"]["macs"] > 0.99 * 3e9


def test_fastest_is_on_the_front(rows, monkeypatch):
    seen = []
    before = search.expected_ms
    monkeypatch.setattr(search, "expected_ms", lambda *args: seen.append(before(*args)) or seen[-1])
    found = rows(f"{BUDGET} --limit 0 --min-distance 0 --range K=4:16:4 E=8:32:8")
    assert min(row["expected_ms"] for row in found) == pytest.approx(np.min(seen[0])) and len(seen[0]) > 20


@pytest.mark.parametrize("order", ["", "--sort macs"])
def test_last_sentence_names_the_fastest_of_the_rows(order, capsys):
    words = f"{BUDGET} --limit 8 --range K=4:16:4 E=8:32:8 {order} --format json"
    assert main(words.split()) == 0
    printed = json.loads(capsys.readouterr().out)
    times = {row["target"]: row["expected_ms"] for row in printed["tables"][0]["rows"]}
    fastest = min(times, key=times.get)
    assert fastest != next(iter(times))
    assert printed["result"].endswith(f" {fastest}: expected to be the fastest of these, {times[fastest]:.3g} ms.")


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


@pytest.mark.parametrize("line", [
    BUDGET, "--match-model llama3-8b --attention gqa --on l40s", "--match-model llama3-8b --attention moh --on l40s",
    "--match-model transformer-big --attention mae --on h100-sxm", "--match-model llm-s --attention mla --on h100-sxm",
    "--match-model llm-s --attention switchhead --on h100-sxm",
])  # fmt: skip
def test_time_of_each_candidate_is_that_of_its_model(line, monkeypatch):
    seen = []
    before = search.expected_ms
    monkeypatch.setattr(search, "expected_ms", lambda *args: seen.append((*args, before(*args))) or seen[-1][-1])
    assert main([*line.split(), "--limit", "1"]) == 0
    ((host, found, card, times),) = seen
    names = list(host.variant.search.letters)
    for place in np.linspace(0, len(found) - 1, 40, dtype=int):
        sizes = {letter: int(found[place][letter]) for letter in names}
        case = Case.of(host.spec, host.changes(sizes), host.lengths)
        (row,) = time_rows(case, card, Assumptions(), passes=["forward pass"])
        assert times[place] == pytest.approx(row.expected_ms, rel=1e-12), sizes


def test_every_candidate_is_timed(capsys):
    line = "--macs 1G:1.2G --params 200M --all-integers --range K=1:16 E=1:64 --on h100-sxm --limit 3"
    assert main(line.split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    number = re.search(r"([\d,]+) candidates, ([\d,]+) within the budget", printed)[2]
    assert int(number.replace(",", "")) > 10_000
    assert f"of each of the {number} candidates within the budget" in printed


@pytest.mark.parametrize("run, line", [
    (count, "moa-8K8E128D --counter closed-form"), (fit.main, "moa-8K8E128D"), (main, "--macs 1G --limit 1"),
    (main, "llama3-8b --ranks 8 --global-batch 8 --bytes 80G --limit 1"),
    (latency, "--estimate moa-8K8E128D --pass forward"),
])  # fmt: skip
@pytest.mark.parametrize("card", ["l40s", "h200-sxm"])
def test_line_of_expected_times_says_that_another_card_was_measured(run, line, card, capsys):
    assert run([*line.split(), "--on", card]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    said = "L40S: the same efficiencies and prices, which no measurement there tests."
    assert "in stored bfloat16 records of the H200 SXM" in printed and (said in printed) == (card == "l40s")
