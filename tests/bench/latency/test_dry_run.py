"""The campaign at its real sizes on the device that is not there: how much of it three calls of ten minutes hold.

Order, store, time limits, block sizes, graphs and tables are the campaign's own. A call takes the device the estimate
on an H200's data sheet times what is assumed of its arm; no tensor is made, and all else is told here how long it is.
"""

from functools import partial

import pytest

from headcount.bench import records
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency import arms, clock, gates, order, peaks, roofline, session, timing, tuning
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.estimate import bound_s
from headcount.bench.latency.order import campaign_cells
from headcount.bench.latency.roofline import executed_work
from tests.bench.latency import fake_cuda

CALLS, WITHIN_S, HELD_S = 3, 580, 30 * 60
WARM_UP_S, CELL_WARM_UP_S = timing.WARM_UP_S, timing.CELL_WARM_UP_S
# assumed: times the bound, and launches of a call; a loop waits for the device at each of its experts
SLOWER = {"loop": (20.0, 200), "grouped": (10.0, 60), "triton": (4.0, 12)}
OTHERS = (4.0, 25)
MODEL_LAUNCHES = 2000
COMPILE_S = 6.0
"""Of the kernels of a layer's pass, the first time in a process."""
GATE_S, WAY_S, PEAKS_S, START_S = 0.2, 0.4, 3.0, 15.0
"""An arm at a gate; a way that is tried; peaks; Python, torch and the driver."""


class Runs:
    """A call that takes the device its time, and the host its launches."""

    sets, rotated_bytes = 4, 180 * 2**20

    def __init__(self, device, cell, spec):
        self.device, self.cell, self.spec = device, cell, spec
        self.label = f"{spec.name} {spec.arm}"
        work = executed_work(cell, spec)
        times, self.launches = SLOWER.get(spec.arm, OTHERS)
        if cell.subject == "model":
            self.launches = MODEL_LAUNCHES
        self.seconds = times * bound_s(work.macs, 2 * work.elements, None, HARDWARE["h200"], cell.dtype)[0]
        self.seconds = max(self.seconds, 1.5e-6 * self.launches)

    def call(self, i):
        device = self.device
        if self.spec.arm == "loop" and device.sync_mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if device.capturing:
            device.capturing.seconds += self.seconds
            return
        device.host += self.launches * 5e-6
        device.free = max(device.free, device.host) + self.seconds
        if self.spec.arm == "loop":
            device.synchronize()


class Dry:
    """The device's clock, and everything that is not a timed call."""

    def __init__(self, device):
        self.device, self.compiled = device, set()

    def takes(self, seconds):
        self.device.host += seconds

    def prepare(self, cell, spec, shared, known):
        empty = dict.fromkeys(("implementation_used", "largest_share", "error", "bound", "choices", "backends"))
        record = {"arm": spec.name, "role": spec.role, "implementation": spec.arm, "status": "timed", **empty}
        record |= clock.ratios.NONE | {"work": roofline.work(cell, spec), "executed": executed_work(cell, spec)}
        self.takes(order.ARM_S["cuda"] + record["work"].params * 5e-9 + self.compiling(cell, spec))
        arm = clock.Timed(Runs(self.device, cell, spec))
        for i in range(order.CHECKS):
            arm.call(i)
        self.device.synchronize()
        return record, arm

    def compiling(self, cell, spec):
        key = (spec.name, cell.which)
        if spec.arm != "triton" or key in self.compiled:
            return 0.0
        self.compiled.add(key)
        return COMPILE_S

    def shared(self, cell, config):
        self.takes(order.CELL_S["cuda"])

    def check_cell(self, cell):
        for spec in cell.arms():
            self.takes(GATE_S + self.compiling(cell, spec))
            shown = dict.fromkeys(column.key for column in gates.TABLE.columns) | {"status": "right"}
            shown |= {"layer": spec.name, "arm": spec.arm}
            yield {
                "kind": gates.KIND,
                "cell": cell.key,
                "arm": f"{spec.name} {spec.arm}",
                "status": "right",
                "shown": shown,
            }

    def choices(self, tokens, dtype):
        from headcount.models.kernels.triton_configs import TABLE

        ways = len(tuning.CORES) * len(tuning.BACKENDS) + sum(1 + len(TABLE[kernel]) for kernel in tuning.KERNELS)
        for number in range(ways):
            self.takes(WAY_S + COMPILE_S / 4)
            yield {"what": "a way", "way": str(number), "us": 1.0, "chosen": None, "status": "timed"}

    def peaks(self, where, dtype):
        self.takes(PEAKS_S)
        return roofline.Peaks(4e14, 4e12, "made up", 4.4e12, 3.9e14, 3.9e12)


@pytest.fixture
def dry(monkeypatch):
    device = fake_cuda.install(monkeypatch)
    found = Dry(device)
    monkeypatch.setattr(timing, "WARM_UP_S", WARM_UP_S)
    monkeypatch.setattr(timing, "CELL_WARM_UP_S", CELL_WARM_UP_S)
    monkeypatch.setattr(arms, "lacks", lambda arm, where: None)
    monkeypatch.setattr(clock, "prepare", found.prepare)
    monkeypatch.setattr(clock, "Shared", found.shared)
    monkeypatch.setattr(clock.gate, "replay_error", lambda run, graph: 0.0)
    monkeypatch.setattr(clock.gc, "collect", lambda: None)
    monkeypatch.setattr(gates, "check_cell", found.check_cell)
    monkeypatch.setattr(tuning, "choices", found.choices)
    monkeypatch.setattr(peaks, "measure_peaks", found.peaks)
    monkeypatch.setattr(session, "Session", partial(session.Session, now=device.clock))
    return found


def called(dry, out_dir):
    """Seconds of the device's clock of one call of the command, as a process of its own."""
    dry.compiled.clear()
    began = dry.device.host
    dry.takes(START_S)
    assert main(["campaign", "--out-dir", str(out_dir), "--commit", "abc", "--within", str(WITHIN_S - START_S)]) == 0
    return dry.device.host - began


def test_three_calls_within_half_an_hour_hold_all_but_the_last(dry, tmp_path, capsys):
    cells = [cell.key for cell in campaign_cells()]
    took, kept = [], []
    for number in range(CALLS):
        took.append(called(dry, tmp_path))
        missing = (tmp_path / "missing.txt").read_text().splitlines()
        kept.append([key for key in cells if not any(line.startswith(f"{key}: ") for line in missing)])
        with capsys.disabled():
            print(f"\ncall {number + 1}: {took[-1]:.0f} s, {len(kept[-1])} of {len(cells)} cells", end="")
    # a command may take 600 s, and the machine is lent for half an hour
    assert max(took) < WITHIN_S + 5 and sum(took) < HELD_S
    # the headline, decoding and MoH come with the first, every layer with the second and third
    assert kept[0][:51] == cells[:51]
    assert set(kept[0]) < set(kept[1]) < set(kept[2])
    # what does not fit is the last in the order: models of 8 G parameters, and the headline once more
    assert set(cells[:-8]) <= set(kept[2])
    found, problems = records.read(tmp_path / "latency.jsonl")
    timed = [(r["cell"], r["arm"], r["implementation"], r["role"]) for r in found if r["kind"] == "latency"]
    assert problems == [] and len(timed) == len(set(timed))
    assert {cell for cell, *_ in timed} == set(kept[2])
    err = capsys.readouterr().err.rstrip()
    assert err.endswith(f"{len(cells) - len(kept[2])} cells are missing") and len(missing) == len(cells) - len(kept[2])


def test_the_time_of_a_dry_run_is_the_devices(dry):
    """A block of a small arm takes what its calls take, not less: else a dry run would prove nothing."""
    cell = next(cell for cell in campaign_cells() if cell.seq_len == 2048)
    began = dry.device.host
    found = list(clock.measure_cell(cell, dry.peaks(None, None), blocks=20))
    assert 2.5 < dry.device.host - began < 30
    by_arm = {r["implementation"]: r for r in found if r["role"] == "subject"}
    estimated = {spec.arm: Runs(dry.device, cell, spec).seconds for spec in cell.arms() if spec.role == "subject"}
    for name in ("dense-all", "grouped", "triton"):
        assert by_arm[name]["timed_by"] == "graph"
        assert by_arm[name]["gpu_ms"] == pytest.approx([1000 * estimated[name]] * 20)
    assert by_arm["loop"]["timed_by"] == "events" and "synchronizing" in by_arm["loop"]["no_graph_because"]
