"""The table of times as a reader meets it: its heads and units, its notes, and what a terminal has room for."""

import pytest

from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.table import Columns
from headcount.bench.table import Section
from tests.bench.output.typed import described, typed

WHAT = """
    layer                    text                always
    arm                      text                always
    T                        integer             always
    B                        integer             wide
    pass                     text                80
    routing                  text                wide
"""
GPU = """
    GPU median ms            0.3333              always
    by                       text                wide
"""
WALL = """
    wall median ms           0.333               always
    wall p10 ms              0.333               wide
    wall p90 ms              0.333               wide
    vs MHA                   0.33 [0.33, 0.33]   wide
"""
RATIOS = """
    tax                      0.33 [0.33, 0.33]   wide
    vs dense                 0.33 [0.33, 0.33]   wide
    verdict                  verdict             wide
    MACs                     MACs                wide
    achieved GMAC/s          0.3                 wide
    of peak %                0.3                 wide
    time / floor             0.33                wide
"""
ESTIMATE = """
    estimate, no measure ms  0.3333              wide
"""
REST = """
    tokens/s                 integer             wide
    memory of a call MiB     0.0                 wide
    rel. error               text, right         wide
"""


def table(device, hardware=None, blocks=20):
    return Columns(device, hardware).table({"device": "a device", "threads": 7}, blocks)


@pytest.mark.parametrize(
    "device, title, texts",
    [
        ("cpu", "CPU wall time", (WHAT, WALL, "verdict  verdict  80", RATIOS, REST)),
        ("cuda", "GPU and wall time", (WHAT, GPU, WALL, "verdict  verdict  wide", RATIOS, ESTIMATE, REST)),
    ],
)
def test_times_have_these_columns_and_a_terminal_keeps_the_medians(device, title, texts):
    columns = [column for text in texts for column in typed(text)]
    assert described(Section(table(device), iter(()))) == [(f"{title} on a device, 7 threads",), *columns]


def test_memory_is_in_mib():
    (column,) = (column for column in table("cuda").columns if column.key == "memory")
    assert column.text(7 * 2**20) == "7.0"


def test_a_smoke_test_is_called_one():
    assert table("cpu", blocks=19).title.endswith("7 threads; 19 blocks: a smoke test, not a measurement")


@pytest.mark.parametrize("device, of", [("cpu", "of wall times"), ("cuda", "of replayed CUDA graphs where both arms")])
def test_notes_say_of_what_ratios_are_and_whose_peaks_floors_have(device, of):
    ratios, which, floor = table(device).notes_above
    assert ratios.startswith("Median over blocks in which arms alternate.")
    assert "95 % bootstrap intervals: vs MHA of the same model width; tax over dense MQA of the same K and D" in ratios
    assert ratios.endswith("; vs dense over the same MoH layer with every head computed.")
    assert which.startswith(f"A ratio is {of}")
    larger = "Floor: the larger of MACs over the peak rate and of unavoidable bytes over the peak bandwidth, "
    assert floor == f"{larger}both measured here."
    hardware = next(iter(HARDWARE.values()))
    assert table(device, hardware).notes_above[2] == f"{larger}both of a data sheet ({hardware.source})."
