"""The fit of the expected time: halves, evidence, and the stored constants."""

from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest

from headcount.bench import records
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import efficiencies
from headcount.bench.latency.__main__ import main
from headcount.bench.performance import model
from headcount.bench.performance.kernel import CORE_BACKWARD, UNLISTED

FOLDER = records.shipped() / efficiencies.RECORDS
PARTS = ("flash_bprop", "compute_dot_do_o", "convert_dq", "fmha_reduce_head")
"""Parts of the names of the kernels that are cuDNN's backward core."""


@pytest.fixture(scope="module")
def listed():
    """The rows with listed kernels, and why the others are not used."""
    return efficiencies.listed_rows(FOLDER)


@pytest.fixture(scope="module")
def rows(listed):
    return listed[0]


@pytest.fixture(scope="module")
def evidence(rows):
    return efficiencies.all_evidence(rows)


def test_stored_constants_are_those_of_a_fit(rows):
    values = efficiencies.fit([row for row in rows if row.is_fitted])
    assert values == model.load().values


def test_halves_are_by_hash_of_words(rows):
    words = "mqa-8x128 fused 2048 8 bfloat16 forward balanced"
    (row,) = [row for row in rows if row.key == words]
    assert row.is_fitted == (int(sha256(words.encode()).hexdigest(), 16) % 2 == 0)
    assert Counter(row.key for row in rows).most_common(1)[0][1] == 1


def test_tested_rows_do_not_change_constants(rows):
    fitted = [row for row in rows if row.is_fitted]
    slower = [row if row.is_fitted else replace(row, us=3 * row.us) for row in rows]
    assert efficiencies.fit([row for row in slower if row.is_fitted]) == efficiencies.fit(fitted)


def test_tested_half_reaches_the_wanted_figures(evidence):
    # masked language models have this length alone, and their product over words has rows that nothing aligns
    assert [line.split(",")[0] for line in efficiencies.missed(evidence)] == ["missed: T 128"]
    first = evidence[0]
    assert first.median_error <= 0.07 and first.within_share >= 0.95 and first.ordered >= 0.97 * first.pairs
    assert {row.tested for row in evidence} >= {"T 10, left out", "T 8192, left out", "moh-32x64-50, left out"}


def test_missed_figures_are_named(evidence):
    row = replace(evidence[0], median_error=0.08, ordered=1)
    assert efficiencies.missed([row]) == [
        "missed: median error 8.0%, wanted 7%", f"missed: right order {1 / row.pairs:.1%}, wanted 97%",
    ]  # fmt: skip


def test_least_time_is_never_above_measured(rows):
    above = [row.key for row in rows if model.least_us(row.kernels, HARDWARE["h200"], row.record.dtype) > row.us]
    assert above == []


def test_profiles_show_idle_multiprocessors_of_backward_cores(rows):
    """A program of a backward core has a tile of keys and reads every query. Heads over the same keys are further
    queries of one head, so that few sequences leave most of 132 multiprocessors idle, and the core takes three times
    as long as its products would on all of them."""
    ratios = []
    for row in rows:
        cores = [kernel for kernel in row.kernels if kernel.kind == CORE_BACKWARD]
        profiled = [kernel for kernel in row.record.kernels or () if any(part in kernel["name"] for part in PARTS)]
        if profiled and {core.core.batch * -(-core.core.keys // 128) for core in cores} == {32}:
            us = sum(kernel["us"] for kernel in profiled)
            ratios.append(model.load().expected_us(cores, HARDWARE["h200"], row.record.dtype) / us)
            busy = [core.macs * core.times / HARDWARE["h200"].macs_per_s["bfloat16"] for core in cores]
            assert 1e6 * sum(busy) / model.load().values[f"core_backward_{cores[0].core.width}"] < us / 3
    assert len(ratios) == 5 and 0.75 < min(ratios) and max(ratios) < 1.25


def test_listed_kernels_do_the_executed_work(rows):
    for row in rows:
        record = row.record
        if record.which == "forward" and record.subject == "layer":
            # outputs of experts by gates in one call are elementwise in the executed form
            kernels = [kernel for kernel in row.kernels if kernel.name != "_embedding_bag_forward_only"]
            macs = sum(kernel.times * kernel.macs for kernel in kernels)
            # MoH's kernels project every head, which its ideal form does not
            is_ideal = record.name.startswith("moh-") and record.implementation == "triton"
            assert macs > record.executed_macs if is_ideal else macs == record.executed_macs, row.key


def test_unlisted_implementations_are_not_used(listed):
    rows, unused = listed
    assert {row.record.implementation for row in rows}.isdisjoint({"loop", "ragged"})
    assert set(unused.values()) == set(UNLISTED.values())


def test_check_fails_where_stored_constants_differ(listed, evidence, monkeypatch, tmp_path, capsys):
    # nothing of the tested half is in the stored constants
    assert main(["efficiencies", "--check"]) == 0
    monkeypatch.setattr(efficiencies, "listed_rows", lambda folder: listed)
    monkeypatch.setattr(efficiencies, "all_evidence", lambda rows: evidence)
    monkeypatch.setattr(efficiencies, "stored_file", lambda: tmp_path / "efficiencies.json")
    assert main(["efficiencies", "--check"]) == 1
    assert "efficiencies.json is stale" in capsys.readouterr().err
    assert main(["efficiencies"]) == 0
    assert main(["efficiencies", "--check"]) == 0


def test_row_without_listed_kernels_is_not_used(rows, tmp_path):
    """A second call reads the cached rows again."""
    records.append(tmp_path / "r.jsonl", rows[0].record)
    for _ in range(2):
        assert efficiencies.stored_rows(tmp_path)[1] == {}
        assert efficiencies.listed_rows(tmp_path) == ([], {rows[0].key: "its kernels are not listed"})
