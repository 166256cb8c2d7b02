"""Times of user modules, presets and configurations, taken in one process in turns."""

import json
import statistics

import psutil
import pytest

from headcount.bench.isolated.user_code import UserCodeError
from headcount.bench.latency import targets, time_targets
from headcount.bench.latency.__main__ import main

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=7):
        super().__init__()
        self.proj = nn.Linear(width, 3)
    def forward(self, x):
        return self.proj(x)

class Broken(Net):
    def forward(self, x):
        if x.is_meta:
            return super().forward(x)
        raise RuntimeError("no values please")

class Mode(Net):
    def forward(self, x):
        return super().forward(x) + self.training

def make(width=7): return Net(width), (torch.ones(5, width),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "timed_net.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def request(*specs, **options):
    usual = {"device": "cpu", "backward": False, "blocks": 3, "threads": None, "mode": "eval"}
    return {"targets": [{"spec": f"timed_net.py:{spec}"} for spec in specs], **usual, **options}


def test_samples_are_one_per_block(quick):
    found = time_targets.answer(request("make", "make"))
    assert [len(one["wall_ms"]) for one in (*found["targets"], found["control"])] == [3, 3, 3]
    assert [one["gpu_ms"] for one in found["targets"]] == [None, None]
    assert all(sample > 0 for one in found["targets"] for sample in one["wall_ms"])


def test_backward_gives_gradients_and_forward_none(quick, monkeypatch):
    seen = []

    def interleave(calls, **_):
        seen.append(calls[0].call(0))
        raise time_targets.ImplFailed(calls[0], "failed: here")

    monkeypatch.setattr(time_targets, "interleave", interleave)
    for backward in (False, True):
        with pytest.raises(UserCodeError, match="timed_net.py:make: failed: here"):
            time_targets.answer(request("make", backward=backward))
    assert [one.requires_grad for one in seen] == [False, True]


def test_targets_are_compared_by_time_and_macs(capsys):
    words = ["timed_net.py:make", "timed_net.py:make,width=11", "--backward"]
    assert main([*words, "--blocks", "3", "--threads", "1", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    first, second = table["rows"]
    # a product and its two gradients
    assert [first["macs"], second["macs"]] == [3 * 5 * 7 * 3, 3 * 5 * 11 * 3]
    assert [first["params"], second["params"]] == [7 * 3 + 3, 11 * 3 + 3]
    assert len(first["wall_ms"]) == 3 and first["to_first"] is None and second["to_first"]["value"] > 0
    median_s = statistics.median(second["wall_ms"]) / 1000
    assert second["macs_per_s"] == pytest.approx(3 * 5 * 11 * 3 / median_s)


@pytest.mark.parametrize("words, mode", [
    ([], "eval"), (["--backward"], "train"), (["--backward", "--mode", "eval"], "eval"), (["--mode", "train"], "train"),
])  # fmt: skip
def test_backward_is_timed_in_train_mode(words, mode, capsys, monkeypatch):
    asked = []

    def isolated(request):
        asked.append(request["mode"])
        return time_targets.answer(request)

    monkeypatch.setattr(targets, "run_isolated", isolated)
    assert main(["timed_net.py:make", "--blocks", "2", *words]) == 0
    assert asked == [mode] and f"in {mode} mode" in " ".join(capsys.readouterr().out.split())


def test_mode_reaches_the_module(quick, monkeypatch):
    seen = []

    def interleave(calls, **_):
        seen.append(calls[0].call(0))
        raise time_targets.ImplFailed(calls[0], "failed: here")

    monkeypatch.setattr(time_targets, "interleave", interleave)
    (target,) = request("Mode")["targets"]
    target |= {"inputs": ("5,7",)}
    for mode in ("eval", "train"):
        with pytest.raises(UserCodeError, match="failed: here"):
            time_targets.answer(request(mode=mode) | {"targets": [target]})
    assert (seen[1] - seen[0]).round().tolist() == [[1.0] * 3] * 5


def test_lengths_are_those_of_configurations(capsys, tmp_path):
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    sizes = {"hidden_size": 24, "head_dim": 6, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 53}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["timed_net.py:make", "config.json", "--seq-len", "13", "--blocks", "2", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    model = 13 * 24 * (3 * 24 + 3 * 32 + 53) + 2 * 4 * 13 * 13 * 6
    assert [row["macs"] for row in table["rows"]] == [5 * 7 * 3, model]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["timed_net.py:Net"], 2, "--input"),
        (["timed_net.py:Broken", "--input", "5,7"], 2, "no values please"),
        (["nothing"], 2, "unknown target"),
        (["timed_net.py:make", "--blocks", "0"], 2, "--blocks"),
    ],
)
def test_wrong_targets_are_one_line(words, code, part, capsys):
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == "" and part in err.splitlines()[-1]


def test_weights_above_free_memory_raise(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 95}))
    with pytest.raises(targets.UsageError, match="96 bytes of weights"):
        targets.check_memory("net", 96, "cpu")
    targets.check_memory("net", 95, "cpu")
    targets.check_memory("net", 96, "cuda")
