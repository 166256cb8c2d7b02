"""Files that fuzzed command lines may name: what is not text, not whole, nested too deep, or no file at all."""

import io
from functools import cache
from pathlib import Path

from headcount.bench import records

MODEL = """
import torch

def make(n=7): return torch.nn.Linear(11, 13, bias=False), (torch.zeros(n, 11),)
"""
ROUTED = ("mlm-moa-8K8E128D", "--set", "d_model=6", "d_ff=5", "num_layers=1", "vocab_size=11", "head_dim=4")
"""The preset of the model that lines of routing name, and what of it is changed."""


def furnish(folder: Path) -> None:
    """Put them into a folder that is made for them."""
    (folder / "folder").mkdir(parents=True)
    (folder / "loop").symlink_to("loop")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "nested.json").write_text("[" * 20000)
    (folder / "half.jsonl").write_text('{"kind": "latency"}\n{"kind": \n')
    (folder / "whole.jsonl").write_bytes(_records())
    (folder / "ids.txt").write_text("1 2 3\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "log.jsonl").write_text('{"step": 1, "tokens_per_expert": {"x": [1, 2]}}\n')
    (folder / "surrogate.txt").write_bytes(b"\xed\xa0\x80 1 2\n")


def checkpoint() -> bytes:
    """The weights of the model that lines of routing name."""
    import torch

    from headcount.models.build import build
    from headcount.models.configs import presets

    name, _, *fields = ROUTED
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.save(build(presets.preset(name, presets.parse_overrides(name, fields))).state_dict(), file)
    return file.getvalue()


@cache
def _records() -> bytes:
    """Some records that came with this software."""
    path = min(records.shipped().glob("*/*.jsonl"))
    return b"".join(path.read_bytes().splitlines(keepends=True)[:8])


def contents(folder: Path) -> set[str]:
    """The names of everything in a folder, but for what Python itself keeps beside a module of somebody's."""
    names = (path.relative_to(folder) for path in folder.rglob("*"))
    return {name.as_posix() for name in names if "__pycache__" not in name.parts}
