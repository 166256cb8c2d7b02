"""Tables of commands, computed once for tests that print them in several formats."""

import re
import shlex
from functools import cache
from importlib import import_module

import pytest

from headcount.__main__ import COMMANDS as HEADCOUNT
from headcount.bench.latency import session
from headcount.bench.render import realised

STREAMED = (
    "latency --layer mha-base --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1",
    "latency gates --layer mha-base --dtype float32",
)
"""Commands whose rows are printed one by one."""
COMMANDS = (
    *STREAMED,
    "audit --counter ptflops-pytorch --device meta",
    "table --counter closed-form --params",
    "table moh-llm moh-llama3 moh-dit moh-vit jetmoe transnext --counter closed-form --columns kv_bytes",
    "count mlm-moa-8K8E128D --seq-len 16 --counter ptflops-pytorch",
    "grid 'K=1,2,4,8 E=8,16,32 D=64,128 T=10,128,512' --counter closed-form",
    "grid 'h=8 s=2 r=3 d_h=64 T=10,8192' --counter torch",
    "compare moa-16K32E256D transformer-big --counter closed-form",
    "count llama3-8b moh-llama3-8b --columns kv_bytes decode_macs generate_bytes --counter closed-form",
    "count jetmoe-8b --seq-len 4096 --counter closed-form",
    "convert llama3-8b s=16 r=8",
    "budget --macs 1.2G --params 250M",
    "derive --preset moa-8K8E128D --vars T,K,D",
    "latency --estimate --on h200-sxm --layer mha-base --seq-len 128",
)


@cache
def tables_of(command):
    """Return the tables of ``command`` with all their rows, and its last line."""
    name, *words = shlex.split(command)
    module = import_module(f"headcount.{HEADCOUNT[name][0]}")
    if words[0] == "gates":
        module, words = import_module("headcount.bench.latency.gates"), words[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(session.SIDE, "cpu", 64)
        patch.setitem(session.COPIED, "cpu", 4096)
        make = module.command
        result = make(module.parser("headcount").parse_args(words))
        return [realised(table) for table in result.tables], result.sentence()


def misaligned_lines(text):
    """Return the lines with a cell wider than its column: the gaps of a table's rule are blank in every row."""
    gaps, found = None, []
    for line in text.splitlines():
        if re.fullmatch(r"-+(  -+)*", line):
            gaps = None if gaps is not None else [place for place, character in enumerate(line) if character == " "]
        elif gaps is not None and any(line[place : place + 1] not in ("", " ") for place in gaps):
            found.append(line)
    return found
