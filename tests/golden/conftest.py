"""Fixtures of the golden files: the folder that commands run in, and commands run in this process at 80 columns."""

import io
import json
import re
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from headcount.__main__ import main
from headcount.bench.records import shipped

MODEL = """\
import torch
from torch import nn


def make(d=6, f=10, n=5):
    return nn.Sequential(nn.Linear(d, f), nn.ReLU(), nn.Linear(f, d)), (torch.zeros(n, d),)


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).real


def spectrum(n=8):
    return Spectrum(), (torch.zeros(n, 8),)


class Elementwise(nn.Module):
    def forward(self, a, b):
        return (a * b).sum(-1)


def elementwise():
    return Elementwise(), (torch.zeros(7, 11), torch.zeros(7, 11))


def cubic(T, D):
    return nn.Linear(D, D * D, bias=False), (torch.zeros(T, D),)


def at_most_13(T):
    if T > 13:
        raise ValueError("at most 13")
    return nn.Linear(4, 4), (torch.zeros(int(T), 4),)


def padded(T):
    return nn.Linear(8, 8), (torch.zeros((int(T) + 15) // 16 * 16, 8),)
"""
TIMED_LAYER = "layer moa-8K8E128D T128 B8 float32 forward cpu balanced"
ROUTED = {"d_model": 6, "d_ff": 5, "num_layers": 2, "vocab_size": 11, "top_k": 2, "num_experts": 3, "head_dim": 4}


@dataclass(frozen=True)
class Result:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def _files(tmp_path_factory):
    """Return a folder with a module, a lock, a count, latency records, a checkpoint and tokens."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "model.py").write_text(MODEL)
    (folder / "lengths.toml").write_text("K = [1, 2]\nE = 2\nD = 7\nT = [13, 17]\n")
    (folder / "tokens.txt").write_text("1 2 3 4 5 6\n7 8 9 10 1\n2 2 3\n")
    _write_records(folder)
    _write_checkpoint(folder)
    return folder


def _write_records(folder):
    """Write one case's stored records, and the same ones with other times and from another device."""
    lines = min(shipped().glob("*/*.jsonl")).read_text("utf-8").splitlines()
    found = [one for one in map(json.loads, lines) if one["cell"] == TIMED_LAYER]
    factors = (0.5, 2, 1)
    for number, one in enumerate(found):
        one["wall_ms"] = [float(10 + number + step) for step in (0, 0.25, 0.5, 0.75)]
    changed = [
        {**one, "wall_ms": [ms * factors[number % 3] for ms in one["wall_ms"]]} for number, one in enumerate(found)
    ]
    elsewhere = [{**one, "environment": {**one["environment"], "device": "another CPU"}} for one in found]
    for name, rows in {"a": found, "b": changed, "elsewhere": elsewhere}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))


def _write_checkpoint(folder):
    """Write a small MoA language model whose weights are the same under every version of torch."""
    import torch

    from headcount.models.build import build
    from headcount.models.configs.presets import preset

    state = build(preset("mlm-moa-8K8E128D", ROUTED)).state_dict()
    for number, (name, values) in enumerate(sorted(state.items())):
        if values.is_floating_point():
            steps = torch.arange(values.numel(), dtype=torch.float64) + number
            state[name] = (0.7 * steps**2).sin().to(values.dtype).reshape(values.shape)
    torch.save(state, folder / "model.pt")


@pytest.fixture
def folder(_files, tmp_path, monkeypatch):
    """Enter a copy of the folder of files, with a terminal of 80 columns and without CUDA devices."""
    import torch

    copy = tmp_path / "work"
    shutil.copytree(_files, copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return copy


def run(line: str | list[str]) -> Result:
    """Run ``headcount ...`` in this process; ``line``: a shell line or its words."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(shlex.split(line) if isinstance(line, str) else line)
        except SystemExit as ended:
            code = ended.code
    return Result(code, out.getvalue(), err.getvalue())


class TextFile(SingleFileSnapshotExtension):
    """A snapshot is a text file that is named by the id of its case."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def snapshot(snapshot):
    return snapshot.use_extension(TextFile)


REPLACEMENTS = (
    # wall clock and memory of this run
    (r"^\d+\.\d s(, peak memory )\d+\.\d\d", r"0.0 s\g<1>0.00"),
    (r"^\d+\.\d s(?=,|$)", "0.0 s"),
    # versions of the counters
    (r'"versions": \{[^}]*\}', '"versions": {}'),
    (r"\b2\.\d\d\.\d(\+\w+)? *", "2.N "),
)
"""Pattern and replacement of each text that differs between machines, in this order."""


def normalised(text: str) -> str:
    """Return the text with the parts that differ between machines replaced."""
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text.replace(f"{Path.cwd()}/", "")
