"""Description of the machine that pytest-benchmark stores with its results, without the machine's name."""

from headcount.bench.env import machine


def pytest_benchmark_update_machine_info(config, machine_info):
    """Replace pytest-benchmark's description of the machine by that of bench.env."""
    machine_info.clear()
    machine_info.update(machine())
