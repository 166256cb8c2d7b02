"""The section that compares measurements with estimates and with repeated measurements."""

from dataclasses import replace

import pytest

from headcount.bench import records
from headcount.reports import latency
from headcount.reports.blocks import time
from headcount.reports.facts import Facts
from tests.reports.pipe_tables import rows_of
from tests.reports.test_latency_report import record

DEVICE, ESTIMATE = "NVIDIA H200", "estimate, no measure ms"
# 2 ms at half of the data sheet's 989.5 TFLOP/s
MACS = 989_500_000_000


def gpu_record(gpu_ms, wall_ms=(9.0, 9.0), **facts):
    environment = record(kind="cuda").environment | {"device": facts.pop("device", DEVICE)}
    how = {"dtype": "bfloat16", "macs": MACS, "least_bytes": 4_800, "gpu_ms": gpu_ms, "again": False, "blocks": 2}
    return record(wall=wall_ms, environment=environment, **how | facts)


@pytest.fixture
def page(tmp_path):
    """Return a function that stores records and returns the section of these alone."""

    def section(*found):
        for one in found:
            records.append(tmp_path / "device" / "r.jsonl", one)
        return time.estimates(Facts(stored=tmp_path))

    return section


def test_rows_have_estimate_and_measurement(page):
    more = {"implementation": "dense-all", "executed_macs": 2 * MACS, "executed_bytes": 1, "seq_len": 11, "cell": "11"}
    grouped, dense_all = rows_of(page(gpu_record([5.0, 5.0]), gpu_record([4.0], **more)), "time / estimate")
    heads = ("layer", "implementation", "T", "B", ESTIMATE, "GPU median ms", "by", "time / estimate")
    expected = ["moa-8K8E128D", "grouped", "7", "2", "2.0000", "5.0000", "graph", "2.50"]
    assert [grouped[head] for head in heads] == expected
    # twice the work is executed and estimated
    assert (dense_all[ESTIMATE], dense_all["time / estimate"]) == ("4.0000", "1.00")


def test_bytes_limit_estimate(page):
    (row,) = rows_of(page(gpu_record([5.0], least_bytes=19_200_000_000)), "time / estimate")
    assert (row[ESTIMATE], row["time / estimate"]) == ("4.0000", "1.25")


def test_second_measurement_is_compared_only(page, tmp_path):
    again = {"again": True, "blocks": 60, "cell": "layer moa-8K8E128D T7 forward again in 60 blocks"}
    elsewhere = gpu_record([9.0], **again)
    elsewhere = replace(elsewhere, environment={**elsewhere.environment, "commit": "another"})
    text = page(
        gpu_record([5.0, 5.0]), gpu_record([5.5, 5.5], **again), gpu_record([3.0], implementation="triton"), elsewhere
    )
    (row,) = rows_of(text, "least")
    assert list(row.values()) == ["graph", "1", "1.100", "1.100", "1.100"]
    newest = latency.newest_records(Facts(stored=tmp_path))
    assert len(newest) == 2 and not any(one.again for one in newest)
    (fastest,) = rows_of(text, "time / estimate")
    assert fastest["implementation"] == "triton"


def test_unlike_measurements_use_wall_time(page):
    eager = {"no_graph_because": "it waits"}
    again = gpu_record([1.0], (12.0, 12.0), again=True, blocks=60, cell="again", **eager)
    (row,) = rows_of(page(gpu_record([5.0], (8.0, 8.0)), again), "least")
    assert (row["timed by"], row["median"]) == ("wall", "1.500")
