"""Clocks and throttle reasons between blocks, also where a field fails."""

from unittest.mock import Mock

from headcount.bench.latency.telemetry import Telemetry


def readings(**fields):
    """Fields that read one value after another; an exception is raised."""
    return Telemetry("cuda", {name: Mock(side_effect=values) for name, values in fields.items()})


def sampled(telemetry, blocks):
    for block in range(blocks):
        telemetry.sample(block)
    return telemetry.summary()


def test_ranges_and_combined_reasons():
    found = sampled(readings(power_mw=[5, 7, 6], throttle_reasons=[0, 4, 8]), 3)
    assert found["power_mw"] == {"min": 5, "max": 7} and found["throttle_reasons"] == 12 and found["samples"] == 3
    # which block it was is no quantity
    assert found.keys() == {"samples", "failed", "power_mw", "throttle_reasons", "slow_blocks"}


def test_failing_field_is_named():
    found = sampled(readings(power_mw=[5, RuntimeError("GPU is lost"), 9], temperature_c=[40, 41, 42]), 3)
    assert found["failed"] == {"power_mw": "GPU is lost"}
    assert found["power_mw"] == {"min": 5, "max": 5} and found["temperature_c"] == {"min": 40, "max": 42}


def test_no_field_gives_no_summary():
    # an error without a message is named by its type
    telemetry = readings(power_mw=[NotImplementedError()])
    assert sampled(telemetry, 2) is None and telemetry.failed == {"power_mw": "NotImplementedError"}
    assert sampled(Telemetry("cpu"), 2) is None


def test_slow_blocks_are_below_the_run_clock():
    """The second case runs at 1500 of the 1800 MHz that the first had."""
    telemetry = readings(sm_clock_mhz=[1800] * 5 + [1800, 1500, 1799])
    assert sampled(telemetry, 5)["slow_blocks"] == []
    assert sampled(telemetry, 3)["slow_blocks"] == [1]
