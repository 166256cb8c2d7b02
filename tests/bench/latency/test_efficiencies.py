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
from headcount.bench.performance.kernel import UNLISTED

FOLDER = records.shipped() / efficiencies.RECORDS


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
