"""``python -m tests.readings``: count three models, and every formulation of a layer, with headcount and other tools.

The tools are installed into an environment of their own, build/readings/, with the newest torch of the index. Each tool
runs in its own process and is called as its documentation says: on the CPU, and on meta for the mixture, whose weights
take 61 GB. The counts are written to reports/records/readings.json, which README.md shows, and to audit.json, which the
page of counters and the explorer show.
Exit codes: 0 success; 2 wrong usage; 3 the environment cannot be made.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headcount.bench.cli import Parser, run
from headcount.bench.errors import EnvironmentMissing

PROG = "python -m tests.readings"
ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "readings"
RECORD = ROOT / "reports" / "records" / "readings.json"
AUDIT = ROOT / "reports" / "records" / "audit.json"
PACKAGES = ("transformers", "torchinfo", "calflops", "thop")
"""Packages that headcount does not require; it requires torch, ptflops and fvcore."""
TOOLS = {
    "headcount": ("headcount", ""),
    "FlopCounterMode": ("torch", "expert products (grouped_mm)"),
    "fvcore": ("fvcore", "fused attention, expert products"),
    "ptflops": ("ptflops", "fused attention, expert products, the router"),
    "ptflops, aten": ("ptflops", "fused attention on the CPU, expert products"),
    "calflops": ("calflops", "fused attention, expert products"),
    "thop": ("thop", "fused attention, expert products, the router"),
    "torchinfo": ("torchinfo", "the sequence: linear layers are multiplied by the batch only"),
}
"""Package, and what it leaves out, by tool. tests/reports/test_readings.py has the terms of each difference."""
QWEN3 = {
    "vocab_size": 151_936, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "intermediate_size": 6144, "tie_word_embeddings": False,
}  # fmt: skip
"""Sizes in the config.json of Qwen3-30B-A3B."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    return Parser(prog=PROG, description=__doc__)


def main(argv: Sequence[str] | None = None) -> int:
    """Count with each tool and store the counts."""
    parser().parse_args(argv)
    return run(PROG, _main)


def _main() -> int:
    python = install()
    found = [_count_with(python, tool) for tool in TOOLS]
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    audit = _run_in(python, "answer_audit()")
    AUDIT.write_text(json.dumps(audit, indent=1) + "\n")
    print(f"{len(found)} tools and {len(audit['cells'])} counts of layers with torch {found[0]['torch']}")
    return 0


def install() -> Path:
    """Make or update the environment and return its Python. Raises EnvironmentMissing."""
    python = STAGE / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", ROOT, *PACKAGES]
    for command in ([sys.executable, "-m", "venv", STAGE], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise EnvironmentMissing(f"{STAGE} cannot be made: {done.stderr.strip().splitlines()[-1]}")
    return python


def _count_with(python: Path, tool: str) -> dict[str, Any]:
    return _run_in(python, f"answer({tool!r})")


def _run_in(python: Path, call: str) -> dict[str, Any]:
    """Return the JSON that a call of this module prints as its last line."""
    child = [python, "-c", f"from tests import readings; readings.{call}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(child, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def answer(tool: str) -> None:
    """Print, as the last line, the versions, and the MACs of each model or the error that ends the call."""
    package, misses = TOOLS[tool]
    found = {"tool": tool, "misses": misses, "version": version(package)}
    found |= {name: version(name) for name in ("torch", "transformers")} | {"macs": {}, "errors": {}}
    for name, model, x in models():
        try:
            found["macs"][name] = int(count_macs(tool, model.eval(), x))
        except Exception as error:
            found["errors"][name] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(found))


def answer_audit() -> None:
    """Print, as the last line, versions and the count of every formulation of a layer by every counter."""
    from headcount.bench import env
    from headcount.bench.result_cache import encode
    from headcount.reports import counting

    versions = env.versions(("torch", "ptflops", "fvcore"))
    print(json.dumps({"versions": versions, "cells": encode(counting.audit())}))


def models():
    """Yield the name of each model, the model and its input: LLaMA of 4 layers and ViT-B/16 on the CPU, and the mixture
    in bfloat16 on meta."""
    import torch
    import transformers as hf

    config = hf.LlamaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8)
    yield "LLaMA, 4 layers", hf.LlamaForCausalLM(config), torch.zeros(1, 1024, dtype=torch.long)
    yield "ViT-B/16", hf.ViTForImageClassification(hf.ViTConfig()), torch.zeros(1, 3, 224, 224)
    with torch.device("meta"):
        model = hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**QWEN3)).to(torch.bfloat16)
        tokens = torch.zeros(1, 128, dtype=torch.long)
    yield "Qwen3-30B-A3B", model, tokens


def count_macs(tool: str, model: Any, x: Any) -> int:
    """Return the MACs of one forward pass as a tool reports them."""
    import torch

    inputs = {model.main_input_name: x}
    if tool == "headcount":
        import headcount as hc

        return hc.count(model, x).macs
    if tool == "FlopCounterMode":
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as mode:
            model(x)
        return mode.get_total_flops() // 2
    if tool == "fvcore":
        from fvcore.nn import FlopCountAnalysis

        class Logits(torch.nn.Module):
            # fvcore cannot trace the dataclasses that transformers returns
            def forward(self, x):
                return self.model(x).logits

        root = Logits()
        root.model = model
        return FlopCountAnalysis(root, x).total()
    if tool == "calflops":
        from calflops import calculate_flops

        return calculate_flops(model, kwargs=inputs, print_results=False, output_as_string=False)[1]
    if tool == "thop":
        from thop import profile

        return profile(model, inputs=(x,), verbose=False)[0]
    if tool == "torchinfo":
        from torchinfo import summary

        return summary(model, input_data=x, device=x.device, verbose=0).total_mult_adds
    import torch._dynamo  # noqa: F401
    from ptflops import get_model_complexity_info

    options = {"as_strings": False, "print_per_layer_stat": False, "backend": "aten" if "aten" in tool else "pytorch"}
    return get_model_complexity_info(model, (1,), input_constructor=lambda _: inputs, **options)[0]


if __name__ == "__main__":
    sys.exit(main())
