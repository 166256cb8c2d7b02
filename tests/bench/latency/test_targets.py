"""User modules, presets and configurations are timed in turns in one process."""

import json
import statistics
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from headcount.bench.errors import UsageError
from headcount.bench.latency import targets, time_targets
from headcount.bench.latency.__main__ import main
from headcount.bench.latency.timing_cases import check_memory
from headcount.bench.targets.process import run_isolated
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError

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
        raise RuntimeError("no values please")

class Mode(Net):
    def forward(self, x):
        return super().forward(x) + self.training

class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

def make(width=7): return Net(width), (torch.ones(5, width),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "timed_net.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def target(spec):
    return Target(f"timed_net.py:{spec}", inputs=() if spec == "make" else ("5,7",))


def one_pass(spec, backward=False, mode="eval"):
    """Return the output of one pass of a target."""
    return time_targets._make_call(target(spec), "cpu", backward, mode).call(0)


def test_backward_needs_gradients():
    assert [one_pass("make", backward).requires_grad for backward in (False, True)] == [False, True]


def test_backward_reaches_inputs():
    assert [one_pass("Doubled", backward).requires_grad for backward in (False, True)] == [False, True]


def test_failing_target_is_named(monkeypatch):
    def interleave(calls, **_):
        raise time_targets.ImplFailed(calls[0], "failed: here")

    monkeypatch.setattr(time_targets, "interleave", interleave)
    how = {"device": "cpu", "backward": False, "blocks": 3, "threads": None, "mode": "eval"}
    for spec, words in (("make", "timed_net.py:make: failed: here"), ("Broken", "RuntimeError: no values please")):
        with pytest.raises(UserCodeError, match=words):
            time_targets.time_targets([target(spec)], **how)


def test_mode_reaches_the_module():
    out, training = (one_pass("Mode", mode=mode) for mode in ("eval", "train"))
    assert (training - out).round().tolist() == [[1.0] * 3] * 5


def test_targets_are_compared_by_time_and_macs(capsys, tmp_path):
    """Options of lengths apply to the configuration, not to the user module."""
    pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    sizes = {"hidden_size": 24, "head_dim": 6, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 53}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, **heads}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["timed_net.py:make,width=11", "config.json", "--seq-len", "13", "--blocks", "3", "--threads", "1"]
    assert main([*words, "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    first, second = table["rows"]
    model = 13 * 24 * (3 * 24 + 3 * 32 + 53) + 2 * 4 * 13 * 13 * 6
    assert [first["macs"], second["macs"]] == [5 * 11 * 3, model] and first["params"] == 11 * 3 + 3
    assert [len(one["wall_ms"]) for one in (first, second)] == [3, 3] and first["gpu_ms"] is None
    assert first["to_first"] is None and second["to_first"]["value"] > 0
    assert second["macs_per_s"] == pytest.approx(model / (statistics.median(second["wall_ms"]) / 1000))


@pytest.mark.parametrize("words, mode", [
    ([], "eval"), (["--backward"], "train"), (["--backward", "--mode", "eval"], "eval"), (["--mode", "train"], "train"),
])  # fmt: skip
def test_backward_is_timed_in_train_mode(words, mode, quick, capsys, monkeypatch):
    modes = []

    def isolated(task, timed, code, label, **how):
        modes.append(how["mode"])
        return time_targets.time_targets(timed, **how)

    monkeypatch.setattr(targets, "run_isolated", isolated)
    assert main(["timed_net.py:make", "--blocks", "2", "--format", "json", *words]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert modes == [mode] and f"in {mode} mode" in table["title"]
    # a product, and its two gradients
    assert table["rows"][0]["macs"] == (3 if "--backward" in words else 1) * 5 * 7 * 3


def test_weights_above_free_memory_raise(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=95))
    with pytest.raises(UsageError, match="96 bytes of weights"):
        check_memory("net", 96, "cpu")
    check_memory("net", 95, "cpu")
    check_memory("net", 96, "cuda")


def test_model_above_free_memory_is_a_row_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert main(["--model", "transformer-base", "--seq-len", "3", "--tokens", "3", "--blocks", "2"]) == 1
    assert "bytes of weights, and 1,000 bytes of memory are free" in capsys.readouterr().err


NET = """import torch
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        open("ran.txt", "a").write("{tree} ")
        return x
"""
MAKE = "def make():\n    return Net(), (torch.ones(5),)\n"
LATE = "def make():\n    import torch, layers\n    return layers.Net(), (torch.ones(5),)\n"
TREES = {
    "alone": {"model.py": NET + MAKE},
    "helper": {"{tree}.py": "import torch\nfrom layers import Net\n" + MAKE, "layers.py": NET},
    "namespace": {"model.py": "import torch\nfrom n.layers import Net\n" + MAKE, "n/layers.py": NET},
    "late": {"model.py": LATE, "layers.py": NET},
}
"""Files of a tree by name; the first defines the target."""


@pytest.mark.parametrize("case", TREES)
def test_each_target_runs_its_own_files(case, tmp_path):
    """Two targets of one process run the code of their own trees, or are refused with both files named."""
    files = {tree: {name.format(tree=tree): text for name, text in TREES[case].items()} for tree in ("old", "new")}
    for tree, texts in files.items():
        for name, text in texts.items():
            path = tmp_path / tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{tree}", tree))
    specs = [f"{tree}/{next(iter(texts))}:make" for tree, texts in files.items()]
    how = {"device": "cpu", "backward": False, "blocks": 3, "threads": None, "mode": "eval"}
    run = partial(run_isolated, targets.TIME, list(map(Target, specs)), code=specs, **how)
    if case == "alone":
        run()
        assert set((tmp_path / "ran.txt").read_text().split()) == {"old", "new"}
        return
    with pytest.raises(UsageError) as refused:
        run()
    named = [str(tmp_path / tree / name) in str(refused.value) for tree, texts in files.items() for name in texts]
    assert sum(named) == 2
