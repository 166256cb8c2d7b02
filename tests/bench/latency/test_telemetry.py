"""Clock, power and temperature between blocks, also where a field cannot be read."""

from unittest.mock import Mock

from headcount.bench.latency.telemetry import Telemetry


def make_telemetry(**fields):
    """Return telemetry whose fields read one value after another; an exception is raised."""
    return Telemetry("cuda", {name: Mock(side_effect=values) for name, values in fields.items()})


def summary_of(telemetry, blocks):
    for block in range(blocks):
        telemetry.sample(block)
    return telemetry.summary()


def test_summary_has_range_of_fields_that_can_be_read():
    telemetry = make_telemetry(power_mw=[5, RuntimeError("GPU is lost"), 9], temperature_c=[40, 42, 41])
    assert summary_of(telemetry, 3) == {"temperature_c": {"min": 40, "max": 42}, "slow_blocks": []}
    assert summary_of(make_telemetry(power_mw=[NotImplementedError()]), 2) is None
    assert summary_of(Telemetry("cpu"), 2) is None


def test_slow_blocks_are_below_the_run_clock():
    """The second case runs a block at 1500 MHz, below 0.9 of the 1800 MHz of the first case."""
    telemetry = make_telemetry(sm_clock_mhz=[1800] * 5 + [1800, 1500, 1799])
    assert summary_of(telemetry, 5)["slow_blocks"] == []
    assert summary_of(telemetry, 3)["slow_blocks"] == [1]
