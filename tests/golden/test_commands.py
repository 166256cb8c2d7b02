"""Golden files of printed output: a file for each command line, at 80 columns.

``pytest tests/golden --snapshot-update`` rewrites them; review the diff. Commands whose whole output is on a
generated page (examples.md, examples-own.md) are not stored here again.
"""

import sys

import pytest

from headcount.bench.accounts import ACCOUNTS, MODULE_ACCOUNTS
from tests.golden.conftest import normalised, run

CLOSED = "--counter closed-form"
PRESETS = f"macs --preset moa-8K8E128D transformer-big {CLOSED} --brief"
OF_LAYERS = [name for name in ACCOUNTS if name not in MODULE_ACCOUNTS]
"""Columns that any preset has: rules of training are of language models."""
COLUMNS = f"{PRESETS} --columns kv_bytes decode_macs training_macs"
GRID = f"macs --grid 'K=1,2 E=8 D=64 T=10' {CLOSED}"
COMPARED = f"macs --compare moa-16K32E256D transformer-big {CLOSED}"
CONVERTED = "macs --preset llama3-8b --convert s=16 r=8"
MODULE = "macs --module model.py:make"
DERIVED = "derive --preset transformer-base --part feed-forward --vars T,d_ff"
BUDGET = "budget --macs 1.2G --attention moa --limit 2 --records none"
ROUTED = (
    "routing --checkpoint model.pt --tokens tokens.txt --least 1 --top 2 --preset mlm-moa-8K8E128D "
    "--set d_model=6 d_ff=5 num_layers=2 vocab_size=11 top_k=2 num_experts=3 head_dim=4"
)
LOCKED = "lock --module model.py:make -o macs.lock"
CHANGED = "lock --check macs.lock --set f=11"
ESTIMATED = "latency --estimate --device h200 --layer mha-base --seq-len 128"
TIMES = "latency compare a.jsonl b.jsonl"

HELP = {
    name: f"{words} --help"
    for name, words in {
        "help": "",
        "macs-help": "macs",
        "latency-help": "latency",
        "latency-compare-help": "latency compare",
        "latency-gates-help": "latency gates",
        "latency-campaign-help": "latency campaign",
        "derive-help": "derive",
        "budget-help": "budget",
        "routing-help": "routing",
        "lock-help": "lock",
        "report-help": "report",
    }.items()
}

MACS = {
    "macs-closed": f"macs {CLOSED}",
    "macs-table3": f"macs --table moa-table3 {CLOSED}",
    "macs-table-moh": f"macs --table moh-llm moh-llama3 moh-vit {CLOSED} --brief",
    "macs-tables-others": f"macs --table dense-anchors transnext moh-table6 moh-table-h jetmoe {CLOSED}",
    "macs-table-json": f"macs --table jetmoe {CLOSED} --format json",
    "macs-table-latex": f"macs --table moa-table3 {CLOSED} --format latex",
    "macs-table-md": f"macs --table moa-table3 {CLOSED} --format md",
    "macs-preset": "macs --preset mlm-moa-8K8E128D --seq-len 16",
    "macs-preset-set": f"macs --preset moa-8K8E128D --set top_k=3 num_decoder_layers=1 --src-len 7 {CLOSED} --unit M",
    "macs-preset-flops": f"{PRESETS} --flops --unit G",
    "macs-preset-csv": f"{PRESETS} --format csv",
    "macs-preset-latex": f"{PRESETS} --format latex",
    "macs-table-gpt3": "macs --table gpt3-d1",
    "macs-preset-rules": "macs --preset llama3-8b --rules palm 6n",
    "macs-preset-moh": f"macs --preset moh-llm-s-75 {CLOSED}",
    "macs-preset-mla": f"macs --preset mla-llm-s {CLOSED} --brief",
    "macs-columns": COLUMNS,
    "macs-columns-csv": f"{COLUMNS} --format csv",
    "macs-columns-latex": f"{COLUMNS} --format latex",
    "macs-columns-wide": f"{PRESETS} --columns {' '.join(OF_LAYERS)} --context 512 --generate 20 --peak-macs 400e12 "
    "--bandwidth 4.8e12 --wide",
    "macs-grid-file": f"macs --grid lengths.toml {CLOSED}",
    "macs-grid-counted": "macs --grid 'K=2,3 E=2,5 D=7 d_m=11 T=13' --counter torch --check",
    "macs-grid-moh": f"macs --grid 'h=7 s=2 r=3 d_h=5 T=7,9' {CLOSED}",
    "macs-grid-csv": f"{GRID} --format csv",
    "macs-grid-json": f"macs --grid 'h=2 d_h=5 T=3' {CLOSED} --columns kv_bytes training_macs --format json",
    "macs-compare-json": "macs --compare model.py:make model.py:make,f=11 --format json",
    "macs-compare-md": f"{COMPARED} --format md",
    "macs-compare-latex": f"{COMPARED} --format latex",
    "macs-compare-modules": "macs --compare model.py:make model.py:make,f=11,n=4",
    "macs-convert-linear": "macs --preset llm-s --convert s=3 r=6 router=linear",
    "macs-convert-json": f"{CONVERTED} --format json",
    "macs-convert-md": f"{CONVERTED} --format md",
    "macs-convert-latex": f"{CONVERTED} --format latex",
    "macs-module": MODULE,
    "macs-module-brief": f"{MODULE} --set n=7 --brief",
    "macs-module-json": f"{MODULE} --counter headcount --format json",
    "macs-module-md": f"{MODULE} --format md",
    "macs-module-csv": f"{MODULE} --brief --format csv",
    "macs-module-latex": f"{MODULE} --format latex",
    "macs-module-unknown": "macs --module model.py:spectrum --counter headcount",
    "macs-module-allowed": "macs --module model.py:spectrum --counter headcount --allow-uncounted",
    "macs-module-formula": "macs --module model.py:spectrum --counter headcount --formula _fft_r2c=a0*8",
    "macs-module-elementwise": "macs --module model.py:elementwise --counter headcount",
}
DERIVE = {
    "derive": DERIVED,
    "derive-model": (
        "derive --preset mlm-transformer --set num_layers=1 --part model --vars T,d_model,d_ff,vocab_size"
    ),
    "derive-module": "derive --module model.py:cubic --vars T,D",
    "derive-no-polynomial": "derive --module model.py:padded --vars T",
    "derive-json": f"{DERIVED} --format json",
    "derive-md": f"{DERIVED} --format md",
    "derive-csv": f"{DERIVED} --format csv",
    "derive-latex": f"{DERIVED} --format latex",
}
BUDGETS = {
    "budget-like": "budget --like transformer-big --attention moa --params 250M --limit 2 --records none --format csv",
    "budget-several": "budget --macs 1.2G --params 200M --kv-bytes 64Ki --limit 3 --records none",
    "budget-any": "budget --macs 700M --any --range K=1:4 E=1:16 --limit 3 --records none",
    "budget-mla": "budget --preset mla-llm-s --macs 300G --limit 3 --records none",
    "budget-md": f"{BUDGET} --format md",
    "budget-csv": f"{BUDGET} --format csv",
    "budget-latex": f"{BUDGET} --format latex",
}
ROUTING = {
    "routing": ROUTED,
    "routing-log": f"{ROUTED} --log log.jsonl --brief",
    "routing-json": f"{ROUTED} --format json",
    "routing-md": f"{ROUTED} --format md",
    "routing-latex": f"{ROUTED} --format latex",
}
LOCK = {
    "lock-file": "lock --module model.py:make",
    "lock-check-json": [LOCKED, f"{CHANGED} --format json"],
    "lock-check-md": [LOCKED, f"{CHANGED} --format md"],
    "lock-check-csv": [LOCKED, f"{CHANGED} --brief --format csv"],
    "lock-check-latex": [LOCKED, f"{CHANGED} --format latex"],
    "lock-update": [LOCKED, "lock --update macs.lock --set f=11", "lock --check macs.lock"],
    "lock-unknown": "lock --module model.py:spectrum",
}
LATENCY = {
    "latency-list": "latency --list",
    "latency-estimate-csv": f"{ESTIMATED} --format csv",
    "latency-estimate-md": f"{ESTIMATED} --format md",
    "latency-estimate-latex": f"{ESTIMATED} --format latex",
    "latency-estimate": "latency --estimate --device a100 --layer moh-32x64-75 --pass both --seq-len 128",
    "latency-compare": TIMES,
    "latency-compare-json": f"{TIMES} --format json",
    "latency-compare-md": f"{TIMES} --format md",
    "latency-compare-csv": f"{TIMES} --format csv",
    "latency-compare-latex": f"{TIMES} --format latex",
    "latency-compare-devices": "latency compare --force a.jsonl elsewhere.jsonl",
}
CASES = HELP | MACS | DERIVE | BUDGETS | ROUTING | LOCK | LATENCY


@pytest.mark.parametrize("case", CASES)
def test_output(case, folder, warm, snapshot):
    if case in HELP and sys.version_info >= (3, 13):
        pytest.skip("argparse of Python 3.13 lays options out in another way")
    lines = CASES[case]
    shown = []
    for line in [lines] if isinstance(lines, str) else lines:
        ended = run(line)
        shown.append(f"$ headcount {line.strip()}\n{normalised(ended.out)}")
        if ended.err:
            shown.append(f"-- standard error\n{normalised(ended.err)}")
        shown.append(f"-- exit code {ended.code}\n")
    assert "".join(shown) == snapshot
