"""What commands print, once made, for tests that look at it in several formats."""

import argparse
import json
import re
import shlex
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module

import pytest

from headcount.bench import records, result_cache
from headcount.bench.counters import registry
from headcount.bench.latency import peaks
from headcount.bench.macs.published import ReproducedTable
from headcount.bench.render import realised
from headcount.formulas.published import tables

COUNTED = records.shipped() / "counts.json"

MODULE = """
import torch


def make(n=3):
    heads = torch.nn.MultiheadAttention(13, 1, batch_first=True)
    return torch.nn.TransformerEncoderLayer(14, 2, 17, batch_first=True), (torch.zeros(n, 7, 14),)
"""
COMMANDS = (
    "macs --counter closed-form --params",
    "macs --table moa-table3 moa-table2",
    "macs --counter closed-form --table moh-llm moh-llama3 moh-dit moh-vit jetmoe transnext --columns kv_bytes",
    "macs --preset moa-8K8E128D --seq-len 512",
    "macs --preset llama3-8b --counter closed-form",
    "macs --preset moa-8K8E128D --set top_k=4 num_experts=16 --counter closed-form",
    "macs --grid 'K=1,2,4,8 E=8,16,32 D=64,128 T=10,128,512' --counter closed-form",
    "macs --grid 'h=8 s=2 r=3 d_h=64 T=10,8192' --counter torch",
    "macs --compare moa-16K32E256D transformer-big --counter closed-form",
    "macs --preset moa-8K8E128D --columns kv_bytes decode_macs training_macs --context 512 --counter closed-form",
    "macs --preset llama3-8b moh-llama3-8b --columns kv_bytes decode_macs generate_bytes --counter closed-form",
    "macs --preset jetmoe-8b --seq-len 4096 --counter closed-form",
    "macs --preset llama3-8b --convert s=16 r=8",
    "macs --audit --counter torch ptflops-pytorch --device meta",
    "budget --macs 1.2G --params 250M",
    "budget --like llm-s --attention moh",
    "derive --preset moa-8K8E128D --vars T,S,K,E,D,d_model",
    "latency --estimate --device h200",
    "latency --layer mha-base --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1",
    "latency gates --layer mha-base --dtype float32",
)

STREAMED = (
    "latency --layer mha-base --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1",
    "latency gates --layer mha-base --dtype float32",
    "macs --audit --counter torch ptflops-pytorch --device meta",
    "macs --table moa-table3 moa-table2",
    "macs --grid 'h=8 s=2 r=3 d_h=64 T=10,8192' --counter torch",
)
"""Those whose rows come one by one."""


@contextmanager
def _known():
    """Published models are not counted again for how they look, where what the report has of them is of these
    sources; afterwards nobody else takes it for a reading."""
    stored = json.loads(COUNTED.read_text())
    for call, answer in result_cache.stored_calls(stored).items():
        name, _, arguments = call.partition(" ")
        if name == "rows":
            ((table, row), *_), *_ = json.loads(arguments)
            ReproducedTable(tables.load(table)).measured(row, registry.NAMES, answer[1])
    try:
        yield
    finally:
        result_cache.clear_cache()


@cache
def sections(command):
    """The sections of ``command`` with all their rows, and its result."""
    name, *rest = shlex.split(command)
    folder = import_module(f"headcount.bench.{name}.__main__")
    if name == "latency" and rest[0] == "gates":
        folder, rest = import_module("headcount.bench.latency.gates"), rest[1:]
    parser: argparse.ArgumentParser = folder.parser()
    known = _known() if "--table" in rest and "--counter" not in rest else nullcontext()
    with known, pytest.MonkeyPatch.context() as patch:
        patch.setitem(peaks.SIDE, "cpu", 64)
        patch.setitem(peaks.COPIED, "cpu", 4096)
        work = folder.plan(parser.parse_args(rest))
        printed = [realised(section) for section in work.sections]
        return printed, work.result(printed)


def out_of_line(text):
    """The lines of ``text`` with a cell that is wider than its column: between two columns of the rule every row has
    blanks."""
    gaps, found = None, []
    for line in text.splitlines():
        if re.fullmatch(r"-+(  -+)*", line):
            gaps = None if gaps is not None else [place for place, character in enumerate(line) if character == " "]
        elif gaps is not None and any(line[place : place + 1] not in ("", " ") for place in gaps):
            found.append(line)
    return found
