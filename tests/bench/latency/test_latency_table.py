"""The table of times as a reader meets it: its heads and units, its notes, and what a terminal has room for."""

import pytest

from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.table import Columns
from headcount.bench.table import Row, Section, Table
from tests.bench.macs.test_widths import too_narrow
from tests.bench.output.reading import left_out
from tests.bench.output.typed import described, typed

WHAT = """
    layer                    text                always
    implementation           text                always
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
    routing overhead         0.33 [0.33, 0.33]   wide
    vs dense                 0.33 [0.33, 0.33]   wide
    verdict                  verdict             wide
    MACs                     MACs                wide
    achieved GMAC/s          0.3                 wide
    of peak %                0.3                 wide
    time / bound             0.33                wide
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


def test_what_a_narrow_terminal_leaves_out_first():
    assert left_out(Section(table("cpu"), iter(()))) == [
        "rel. error", "memory of a call MiB", "tokens/s", "achieved GMAC/s", "wall p90 ms", "wall p10 ms",
        "of peak %", "routing", "B", "time / bound", "MACs", "verdict", "vs dense",
        "routing overhead", "vs MHA", "pass",
    ]  # fmt: skip


LONG = {
    "layer": "mla-v2-lite-ideal", "implementation": "dense-all", "seq_len": 8192, "batch_size": 1024,
    "pass": "backward", "routing": "one-expert", "gpu_ms": 999.1234, "timed_by": "events",
    "wall_ms": 9999.123, "p10_ms": 9999.123,
    "p90_ms": 9999.123, **dict.fromkeys(("to_mha", "tax", "to_dense"), {"value": 9.99, "low": 9.75, "high": 10.0}),
    "macs": 999_999_999_999, "rate": 99_999.9, "peak_share": 100.0, "floors": 999.99, "estimate_ms": 9999.1234,
    "tokens_per_s": 999_999_999, "memory": 99_999 * 2**20, "error": "7e-04",
    **dict.fromkeys(("to_mha_verdict", "to_dense_verdict"), "no evidence"),
}  # fmt: skip


def test_columns_have_room_for_seconds_for_ratios_of_ten_and_for_teramacs():
    columns = table("cuda").columns
    assert LONG.keys() == {column.key for column in columns}
    assert too_narrow(columns, [Row(LONG)]) == []
    spare = {column.key: column.width - len(column.text(LONG[column.key])) for column in columns if column.width}
    assert {key: number for key, number in spare.items() if number} == {
        "implementation": 5, "gpu_ms": 1, "rate": 1, "floors": 1, "error": 2,
    }  # fmt: skip


def test_memory_is_in_mib():
    (column,) = (column for column in table("cuda").columns if column.key == "memory")
    assert column.text(7 * 2**20) == "7.0"


def test_a_smoke_test_is_called_one():
    assert table("cpu", blocks=19).title.endswith("7 threads; 19 blocks: a smoke test, not a measurement")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_notes_state_whose_peaks_the_roofline_bound_has(device):
    assert table(device).notes_above[-1].endswith("both measured here.") and table(device).note_column == "layer"
    hardware = next(iter(HARDWARE.values()))
    assert table(device, hardware).notes_above[-1].endswith(f"both of a data sheet ({hardware.source}).")


def test_times_of_a_cpu_say_that_none_of_a_gpu_stands_there():
    said = "Measured on a CPU. CUDA is not measured here: python -m bench.latency --device cuda needs a GPU."
    assert (Columns("cpu").below(), Columns("cuda").below()) == ([said], [])


def test_notes_of_a_row_say_why_it_has_no_time_no_graph_or_a_clock_that_fell():
    notes, slow = Columns("cuda").notes, {"telemetry": {"slow_blocks": [1, 2]}}
    below = "in 2 of 3 blocks the clock was below 0.9 of the run's median"
    assert notes(record()) == notes(record(telemetry={"slow_blocks": []})) == []
    assert notes(record(**slow)) == [below]
    waits = "no CUDA graph, so GPU time includes launches and waits: it reads a size back"
    assert notes(record(no_graph_because="it reads a size back", **slow)) == [waits, below]
    assert notes(record(status="out of memory", **slow)) == ["not timed: out of memory"]
    before = record()
    # records of earlier versions
    del before["telemetry"]
    assert notes(before) == []


def record(**changes):
    """A row as it is stored: 2, 4 and 6 ms for 8 GMACs and 1,001 tokens, of a processor that does 4 TMAC/s."""
    nothing = ("to_mha", "to_mha_verdict", "tax", "to_dense", "to_dense_verdict", "no_graph_because", "gpu_ms")
    interval = {"value": 0.5, "low": 0.25, "high": 0.75}
    return dict.fromkeys(nothing) | {
        "layer": "moa", "implementation": "auto", "implementation_used": "grouped", "seq_len": 7, "batch_size": 143,
        "pass": "forward", "routing": "balanced", "largest_share": 0.5, "wall_ms": [2.0, 4.0, 6.0], "status": "timed",
        "macs": 8 * 10**9, "tokens": 1001, "peak_memory_bytes": 5, "error": 0.00071, "tax": interval,
        "dtype": "float32", "peaks": {"macs_per_s": 4e12}, "floor_ms": 2.0, "telemetry": None, "blocks": 3,
        "timed_by": "wall",
    } | changes  # fmt: skip


def test_a_row_is_the_median_and_what_follows_from_it():
    values = Columns("cpu").values(record())
    assert [values[name] for name in ("layer", "implementation", "pass", "routing")] == [
        "moa",
        "grouped",
        "forward",
        "balanced",
    ]
    assert [values[name] for name in ("wall_ms", "p10_ms", "p90_ms")] == pytest.approx([4, 2.4, 5.6])
    # 8 GMACs in 4 ms are 2,000 GMAC/s, half of the peak; 4 ms are twice the floor
    assert [values[name] for name in ("rate", "peak_share", "floors")] == [2000, 50, 2]
    assert values["timed_by"] == "wall"
    assert values["tokens_per_s"] == 250_250 and values["error"] == "7e-04" and values["memory"] == 5
    assert values["tax"]["value"] == 0.5 and values["to_mha"] is values["gpu_ms"] is values["estimate_ms"] is None


def test_the_result_is_how_many_rows_were_timed_and_what_they_are_beside_dense_ones():
    verdicts = [("faster", None), ("slower", "faster"), ("faster", None)]
    found = [record(to_mha_verdict=mha, to_dense_verdict=dense) for mha, dense in verdicts]
    found += [record(), record(wall_ms=None, to_mha_verdict="faster")]
    rows, of = [Row(Columns("cpu").values(one)) for one in found], Columns("cpu").result
    others = Section(Table("others", "of something else", []), rows)
    assert of([Section(table("cpu"), rows), others]) == (
        "4 of 5 rows timed; against MHA: 2 faster, 1 slower; against the same layer with every head: 1 faster."
    )
    assert of([Section(table("cpu"), rows[3:])]) == "1 of 2 rows timed."


def test_what_was_not_measured_is_unknown():
    values = Columns("cpu").values(record(wall_ms=None, error=None, largest_share=None, implementation_used=None))
    times = ("wall_ms", "p10_ms", "p90_ms", "rate", "peak_share", "floors", "tokens_per_s")
    unknown = (*times, "error", "routing", "timed_by")
    assert values["implementation"] == "auto" and [name for name in unknown if values[name] is not None] == []


def test_gpu_time_stands_before_wall_time_in_what_follows():
    values = Columns("cuda").values(record(gpu_ms=[1.0, 2.0, 3.0]))
    assert (values["gpu_ms"], values["wall_ms"], values["rate"]) == pytest.approx((2, 4, 4000))
