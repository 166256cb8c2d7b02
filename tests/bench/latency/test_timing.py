"""Arms alternate, blocks fill the clock's grain, and an arm that is wrong or does not fit prints no time."""

import json

import pytest
import torch

from headcount.bench import records
from headcount.bench.latency import clock
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import Cell
from headcount.bench.latency.roofline import Peaks, floor_s, least_bytes, pass_macs
from headcount.bench.latency.runs import layer_run
from headcount.bench.latency.table import Columns
from headcount.bench.latency.timing import Arm, interleave
from headcount.formulas import mha, moa
from headcount.models.configs.layers import LAYERS
from headcount.models.configs.make import make_config

PEAKS = Peaks(1e9, 1e9, "made up")


class Clock:
    """Time that passes only when an arm runs."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def arm(self, name, seconds):
        def call(i):
            self.log.append((name, i))
            self.now += seconds

        return Arm(name, call)


def test_arms_alternate_in_abba_blocks():
    fake = Clock()
    arms = [fake.arm("a", 1.0), fake.arm("b", 1.0)]
    interleave(arms, blocks=4, sets=2, device="cpu", clock=fake)
    order = [name for name, _ in fake.log][-8:]
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_samples_are_seconds_per_call_one_for_each_block():
    fake = Clock()
    arms = [fake.arm("slow", 0.5), fake.arm("quick", 0.001)]
    interleave(arms, blocks=3, sets=2, device="cpu", clock=fake)
    assert arms[0].wall_s == pytest.approx([0.5] * 3) and arms[0].calls == 1
    assert arms[1].wall_s == pytest.approx([0.001] * 3) and arms[1].calls == 20
    assert arms[0].gpu_s == []


def test_inputs_rotate():
    fake = Clock()
    interleave([fake.arm("a", 0.001)], blocks=1, sets=3, device="cpu", clock=fake)
    assert [i for _, i in fake.log[-20:]] == [i % 3 for i in range(20)]


def test_progress_is_told_of_every_block():
    fake, seen = Clock(), []
    interleave([fake.arm("a", 1.0)], blocks=3, sets=1, device="cpu", clock=fake, on_block=seen.append)
    assert seen == [0, 1, 2]


def test_an_arm_is_checked_against_a_reference_of_the_same_gradient(monkeypatch):
    sizes = dict(attention="moh", d_model=20, num_heads=5, num_shared_heads=1, top_k=2, head_dim=4)
    config = make_config(sizes | {"router": "query_norm"})
    specs = [ArmSpec("tiny", config, arm, "subject") for arm in ("fused", "ragged")]
    monkeypatch.setattr(Cell, "arms", lambda self: specs)
    cell = Cell("layer", "tiny", **TINY | {"which": "both"})
    assert [layer_run(cell, spec).error() < 1e-12 for spec in specs] == [True, True]
    # the gradient of Eq. 10 through unselected heads is no rounding
    monkeypatch.setattr(ArmSpec, "reference", config)
    assert [layer_run(cell, spec).error() < 1e-3 for spec in specs] == [True, False]


def test_a_pass_has_each_contraction_once_forward_and_twice_backward():
    form = mha.layer("", B=1, T=7, S=7, d_m=15, h=3, d_h=5, g=3)
    assert [pass_macs(form, p) / form.macs for p in ("forward", "backward", "both", "decode")] == [1, 2, 3, 1]


def test_the_floor_is_the_larger_of_work_and_traffic():
    assert floor_s(2 * 10**9, 10**9, PEAKS) == 2.0
    assert floor_s(10**9, 3 * 10**9, PEAKS) == 3.0


def test_least_bytes_hold_each_reachable_weight_once():
    many = moa.layer("", B=2, T=100, S=100, d_m=13, E=11, K=3, D=5)
    weights = 13 * 11 + 2 * 11 * 13 * 5 + 2 * 13 * 5
    assert least_bytes(many, "forward", 70, 4) == 4 * (weights + 70)
    assert least_bytes(many, "both", 70, 4) == 3 * 4 * (weights + 70)
    one = moa.layer("", B=1, T=1, S=1, d_m=13, E=11, K=3, D=5)
    assert least_bytes(one, "forward", 0, 2) == 2 * (13 * 11 + 2 * 3 * 13 * 5 + 2 * 13 * 5)


TINY = dict(seq_len=7, batch_size=2, dtype="float64", which="forward", device="cpu", routing="zipf")


def tiny_arms(monkeypatch, *implementations):
    moa_config = make_config(dict(attention="moa", d_model=20, num_experts=5, top_k=2, head_dim=12))
    mha_config = make_config(dict(attention="mha", d_model=20, num_heads=2, bias=False))
    specs = [ArmSpec("tiny", moa_config, how, "subject") for how in implementations]
    specs += [ArmSpec("mqa", mha_config, "fused", "mqa"), ArmSpec("mha", mha_config, "fused", "mha")]
    monkeypatch.setattr(Cell, "arms", lambda self: specs)
    monkeypatch.setattr("headcount.bench.latency.timing.WARM_UP_S", 0.0)
    monkeypatch.setattr("headcount.bench.latency.timing.BLOCK_S", {"cpu": 0.0005, "cuda": 0.0})


@pytest.mark.parametrize("which", ["forward", "backward", "both", "decode"])
def test_a_cell_gives_a_record_for_each_arm(which, monkeypatch):
    tiny_arms(monkeypatch, "reference", "loop")
    cell = Cell("layer", "tiny", **TINY | {"which": which})
    found = list(clock.measure_cell(cell, PEAKS, blocks=3))
    assert [r["status"] for r in found] == ["timed"] * 4
    assert [r["implementation_used"] for r in found] == ["reference", "loop", "fused", "fused"]
    t = 1 if which == "decode" else 7
    forward = moa.layer("", B=2, T=t, S=7, d_m=20, E=5, K=2, D=12).macs
    assert found[0]["macs"] == {"forward": 1, "backward": 2, "both": 3, "decode": 1}[which] * forward
    for record in found:
        assert len(record["wall_ms"]) == 3 and record["gpu_ms"] is None and record["smoke"]
        assert record["error"] < 1e-10
    assert found[0]["tax"]["value"] > 0 and found[0]["to_mha_verdict"] in ("faster", "slower", "no evidence")
    assert found[2]["tax"] is None
    assert found[0]["largest_share"] > 1 / 5 and found[2]["largest_share"] is None
    json.dumps(found)


def test_an_arm_that_is_wrong_prints_no_time(monkeypatch):
    tiny_arms(monkeypatch, "loop")
    monkeypatch.setattr("headcount.bench.latency.runs.Run.error", lambda self: 0.5 if "tiny" in self.label else 0.0)
    found = list(clock.measure_cell(Cell("layer", "tiny", **TINY), PEAKS, blocks=2))
    assert found[0]["status"] == "wrong: relative error 5.0e-01"
    assert found[0]["wall_ms"] is None and found[1]["wall_ms"]
    values = Columns("cpu").values(found[0])
    assert values["wall_ms"] is None and values["rate"] is None
    assert Columns("cpu").notes(found[0]) == ["not timed: wrong: relative error 5.0e-01"]


def test_an_error_that_is_not_a_number_is_wrong(monkeypatch):
    tiny_arms(monkeypatch, "loop")
    monkeypatch.setattr("headcount.bench.latency.runs.Run.error", lambda self: float("nan"))
    found = list(clock.measure_cell(Cell("layer", "tiny", **TINY), PEAKS, blocks=2))
    assert {r["status"] for r in found} == {"wrong: relative error nan"}


def test_an_arm_that_does_not_fit_is_a_row_that_says_so(monkeypatch):
    tiny_arms(monkeypatch, "loop")
    made = clock.layer_run

    def run(cell, spec):
        if spec.name == "tiny":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return made(cell, spec)

    monkeypatch.setattr(clock, "layer_run", run)
    found = list(clock.measure_cell(Cell("layer", "tiny", **TINY), PEAKS, blocks=2))
    assert [r["status"] for r in found] == ["out of memory", "timed", "timed"]


def test_a_real_error_is_not_mistaken_for_missing_memory(monkeypatch):
    tiny_arms(monkeypatch, "loop")

    def run(cell, spec):
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(clock, "layer_run", run)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        list(clock.measure_cell(Cell("layer", "tiny", **TINY), PEAKS, blocks=2))


def test_a_model_is_timed_forward_and_in_training(monkeypatch):
    config = make_config(
        dict(model="masked_lm", attention="mha", d_model=20, num_heads=2, d_ff=8, num_layers=1, vocab_size=31)
        | dict(max_positions=11)
    )
    monkeypatch.setattr(Cell, "arms", lambda self: [ArmSpec("tiny", config, "fused", "subject")])
    for which in ("forward", "both"):
        cell = Cell("model", "tiny", **TINY | {"which": which, "routing": "natural"})
        (record,) = clock.measure_cell(cell, PEAKS, blocks=2)
        assert record["status"] == "timed" and record["implementation_used"] == "fused"
        assert record["tokens"] == 14


@pytest.fixture
def tiny_command(monkeypatch):
    tiny_arms(monkeypatch, "loop")
    monkeypatch.setattr("headcount.bench.latency.roofline.measure_peaks", lambda device, dtype: PEAKS)
    return ["--layer", "moa-8K8E128D", "--seq-len", "7", "--batch-size", "2", "--dtype", "float64", "--blocks", "2"]


def test_the_command_prints_a_smoke_test_that_names_the_cpu(tiny_command, capsys):
    assert main([*tiny_command, "--pass", "forward"]) == 0
    out = capsys.readouterr().out
    assert "CPU wall time on" in out and "2 blocks: a smoke test, not a measurement" in out
    assert "CUDA is not measured here" in out


def test_an_interrupted_run_resumes_by_cell(tiny_command, capsys, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    argv = [*tiny_command, "--pass", "forward", "both", "--json", str(path)]
    measure, calls = clock.measure_cell, []

    def interrupted(cell, peaks, **options):
        calls.append(cell.which)
        if cell.which == "both":
            raise KeyboardInterrupt
        yield from measure(cell, peaks, **options)

    monkeypatch.setattr(clock, "measure_cell", interrupted)
    assert main(argv) == 130
    monkeypatch.setattr(
        clock, "measure_cell", lambda cell, peaks, **o: calls.append(cell.which) or measure(cell, peaks, **o)
    )
    assert main(argv) == 0
    assert calls == ["forward", "both", "both"]
    found, problems = records.read(path)
    assert [(r["pass"], r["arm"]) for r in found] == [
        (p, a) for p in ("forward", "both") for a in ("tiny", "mqa", "mha")
    ]
    assert problems == [] and all(r["environment"]["packages"]["torch"] for r in found)


def test_an_arm_that_is_wrong_makes_the_command_fail(tiny_command, capsys, monkeypatch):
    monkeypatch.setattr("headcount.bench.latency.runs.Run.error", lambda self: 1.0)
    assert main([*tiny_command, "--pass", "forward"]) == 1
    assert "not timed: wrong" in capsys.readouterr().out


WRONG = {
    "layer": (["--layer", "moa"], "unknown layer 'moa'; choose from mha-base"),
    "model": (["--model", "gpt"], "unknown preset 'gpt'; choose from transformer-base"),
    "arm": (["--layer", "mha-base", "--arm", "fast"], "mha has no arm fast; choose from reference, fused, auto"),
    "arm, under its old name": (["--layer", "mha-base", "--implementation", "fast"], "mha has no arm fast"),
    "pass": (["--pass", "sideways"], "invalid choice: 'sideways'"),
    "model pass": (["--model", "transformer-base", "--pass", "decode"], "a model is timed by --pass forward or both"),
    "routing": (["--routing", "random"], "invalid choice: 'random'"),
    "length": (["--seq-len", "0"], "--seq-len must be at least 1, not 0"),
    "tokens": (["--tokens", "0"], "--tokens must be at least 1, not 0"),
    "blocks": (["--blocks", "0"], "--blocks must be at least 1, not 0"),
    "both sizes": (["--tokens", "8", "--batch-size", "2"], "not allowed with argument"),
    "dtype": (["--dtype", "int8"], "invalid choice: 'int8'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_2(case, capsys):
    argv, message = WRONG[case]
    code = main(argv)
    out, err = capsys.readouterr()
    assert code == 2 and out == ""
    assert message in err and err.count("\n") == 1


def test_cuda_without_a_device_exits_3(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--device", "cuda"]) == 3
    assert capsys.readouterr().err.startswith("python -m bench.latency: error: no CUDA device")


def test_list_names_everything(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in (*LAYERS, "mlm-transformer", "dense-all", "zipf", "decode", "bfloat16"):
        assert name in out


def test_a_cell_whose_arms_do_not_fit_together_says_so(monkeypatch):
    tiny_arms(monkeypatch, "loop")

    def interleave(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(clock, "interleave", interleave)
    found = list(clock.measure_cell(Cell("layer", "tiny", **TINY), PEAKS, blocks=2))
    assert {r["status"] for r in found} == {"out of memory beside the other arms"}
    assert all(r["wall_ms"] is None for r in found)
