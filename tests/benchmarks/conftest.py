"""What pytest-benchmark stores with its figures: the machine, without its name."""

from headcount.bench.env import machine


def pytest_benchmark_update_machine_info(config, machine_info):
    """Replace pytest-benchmark's description of the machine by ours."""
    machine_info.clear()
    machine_info.update(machine())
