"""Benchmark time and memory of hc.count against torch's FlopCounterMode, alternating in one run.

The limits depend on the machine's load, so these are benchmarks and not tests.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.api.count import count_macs
from headcount.bench.counting.copies import FakeWeights, with_fake_weights
from headcount.bench.counting.run import count_contractions
from headcount.bench.trace.record import record

ROOT = Path(__file__).parents[2]
MEMORY = 1.5
"""Limit of the peak memory, as a multiple of that of FlopCounterMode."""


class Recurrence(nn.Module):
    """h = a h + x, y = h C, step by step."""

    def forward(self, a, x, c):
        h, out = torch.zeros_like(x[0]), []
        for step in x:
            h = a * h + step
            out.append(h @ c)
        return torch.stack(out)


class SelectiveScan(nn.Module):
    """A state-space layer as a Python loop, the fallback without a compiled kernel."""

    def forward(self, decay, step, c):
        state, out = torch.zeros_like(step[:, 0]), []
        for t in range(step.shape[1]):
            state = decay[:, t] * state + step[:, t]
            out.append((state * c[:, t, None]).sum(-1))
        return torch.stack(out, 1)


class Generation(nn.Module):
    """Token-by-token generation with a growing cache."""

    def forward(self, x):
        cache, out = x[:0], []
        for t in range(len(x)):
            cache = torch.cat([cache, x[t : t + 1]])
            out.append(torch.softmax(x[t : t + 1] @ cache.mT, -1) @ cache)
        return torch.cat(out)


class Experts(nn.Module):
    """Mixtral's loop over experts: gather an expert's tokens, apply the expert, add its output with index_add_."""

    def __init__(self, num_experts, top_k=2, d_model=16, d_ff=24):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(d_model, num_experts, bias=False)
        sizes = {"up": (d_model, d_ff), "side": (d_model, d_ff), "down": (d_ff, d_model)}
        expert = lambda: nn.ModuleDict({name: nn.Linear(*size, bias=False) for name, size in sizes.items()})  # noqa: E731
        self.experts = nn.ModuleList(expert() for _ in range(num_experts))

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(self.gate(x), -1), self.top_k)
        masks = nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert, mask in zip(self.experts, masks, strict=True):
            slots, tokens = torch.where(mask)
            rows = x[None, tokens].reshape(-1, x.shape[-1])
            inner = nn.functional.silu(expert["up"](rows)) * expert["side"](rows)
            out.index_add_(0, tokens, expert["down"](inner) * weights[tokens, slots, None])
        return out


def ones(*shape):
    return torch.ones(shape, device="meta")


def linear_layers():
    return nn.Sequential(*(nn.Linear(8, 8, device="meta") for _ in range(1000)))


def convolutions():
    block = lambda: (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())  # noqa: E731
    return nn.Sequential(*(layer for _ in range(150) for layer in block())).to("meta")


CASES = {
    "recurrence of 1,000 steps": lambda: (Recurrence(), (ones(2, 5), ones(1000, 2, 5), ones(5, 3))),
    "recurrence of 4,000 steps": lambda: (Recurrence(), (ones(2, 5), ones(4000, 2, 5), ones(5, 3))),
    "selective scan of 1,000 steps": lambda: (
        SelectiveScan(),
        (ones(2, 1000, 5, 3), ones(2, 1000, 5, 3), ones(2, 1000, 3)),
    ),
    "generation of 800 tokens": lambda: (Generation(), (ones(800, 8),)),
    "1,000 linear layers": lambda: (linear_layers(), (ones(2, 8),)),
    **{f"loop of {n} experts": lambda n=n: (Experts(n), (torch.randn(64, 16),)) for n in (8, 64)},
    "150 convolutions": lambda: (convolutions(), (ones(1, 8, 16, 16),)),
}


def run_flop_counter(model, inputs):
    with torch.no_grad(), FlopCounterMode(display=False):
        model.eval()(*inputs)


def run_count_macs(model, inputs):
    count_macs(model, *inputs)


def jetmoe(layers):
    """Return transformers' JetMoE, whose routers read how many tokens each expert has, with its inputs."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "kv_channels": 16, "num_key_value_heads": 2}
    config = transformers.JetMoeConfig(num_hidden_layers=layers, vocab_size=512, **sizes)
    return transformers.JetMoeModel(config), (torch.arange(32)[None],)


READS_VALUES = {
    **{name: CASES[name] for name in ("loop of 8 experts", "loop of 64 experts")},
    **{f"JetMoE of {n} layers": lambda n=n: jetmoe(n) for n in (4, 24)},
}
"""Models that read values of their inputs, on the CPU."""


def run_with_fake_weights(model, inputs):
    count_contractions(record(*with_fake_weights((model, inputs, {}), FakeWeights(seed=0))))


COUNTERS = {"torch": run_flop_counter, "ours": run_count_macs}


def processor_seconds(function, *args):
    started = time.process_time()
    function(*args)
    return time.process_time() - started


def compare(benchmark, count, model, inputs):
    """Time a way to count a model beside FlopCounterMode, by turns; the first run of each is not timed."""
    run_flop_counter(model, inputs)
    count(model, inputs)
    plain = []

    def prepare():
        plain.append(processor_seconds(run_flop_counter, model, inputs))
        return (model, inputs), {}

    counted = []
    benchmark.pedantic(
        lambda *args: counted.append(processor_seconds(count, *args)), setup=prepare, rounds=4, iterations=1
    )
    ratio = min(counted) / min(plain)
    benchmark.extra_info.update(torch_s=min(plain), ours_s=min(counted), ratio=ratio)


@pytest.mark.parametrize("case", CASES)
def test_time_against_flop_counter(benchmark, case):
    compare(benchmark, run_count_macs, *CASES[case]())


@pytest.mark.parametrize("case", READS_VALUES)
def test_time_with_fake_weights(benchmark, case):
    compare(benchmark, run_with_fake_weights, *READS_VALUES[case]())


def test_time_is_linear_in_steps(benchmark):
    short, long = (CASES[f"recurrence of {steps} steps"]() for steps in ("1,000", "4,000"))
    run_count_macs(*short)
    seconds = {"short": [], "long": []}

    def run_both():
        seconds["short"].append(processor_seconds(run_count_macs, *short))
        seconds["long"].append(processor_seconds(run_count_macs, *long))

    benchmark.pedantic(run_both, rounds=3, iterations=1)
    growth = min(seconds["long"]) / min(seconds["short"])
    benchmark.extra_info["growth"] = growth
    # a quadratic time would grow by 16
    assert growth < 5.5


@pytest.mark.parametrize("case", ["recurrence of 4,000 steps", "generation of 800 tokens", "150 convolutions"])
def test_memory_against_flop_counter(benchmark, case):
    peaks = {}

    def measure():
        for counter in COUNTERS:
            command = [sys.executable, "-m", "tests.benchmarks.test_beside_torch", counter, case]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
            peaks[counter] = int(done.stdout)

    benchmark.pedantic(measure, rounds=1, iterations=1)
    benchmark.extra_info.update(peaks, ratio=peaks["ours"] / peaks["torch"])
    assert peaks["ours"] < MEMORY * peaks["torch"]


if __name__ == "__main__":
    COUNTERS[sys.argv[1]](*CASES[sys.argv[2]]())
    # getrusage would include the peak of the parent process
    print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
