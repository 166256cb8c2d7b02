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
"""Columns that every preset has; rules of training FLOPs need a language model."""
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


def in_formats(name, line, *formats):
    """Return the line by its name, once for each format."""
    return {f"{name}-{form}": f"{line} --format {form}" for form in formats}


HELP = {"help": " --help"} | {
    f"{words.replace(' ', '-')}-help": f"{words} --help"
    for words in (
        "macs", "latency", "latency compare", "latency gates", "latency campaign", "derive", "budget", "routing",
        "lock", "report",
    )
}  # fmt: skip

MACS = {
    "macs-closed": f"macs {CLOSED}",
    "macs-table3": f"macs --table moa-table3 {CLOSED}",
    "macs-table-moh": f"macs --table moh-llm moh-llama3 moh-vit {CLOSED} --brief",
    "macs-tables-others": f"macs --table dense-anchors transnext moh-table6 moh-table-h jetmoe {CLOSED}",
    **in_formats("macs-table", f"macs --table moa-table3 {CLOSED}", "latex", "md"),
    "macs-table-json": f"macs --table jetmoe {CLOSED} --format json",
    "macs-preset": "macs --preset mlm-moa-8K8E128D --seq-len 16",
    "macs-preset-set": f"macs --preset moa-8K8E128D --set top_k=3 num_decoder_layers=1 --src-len 7 {CLOSED} --unit M",
    "macs-preset-flops": f"{PRESETS} --flops --unit G",
    **in_formats("macs-preset", PRESETS, "csv", "latex"),
    "macs-table-gpt3": "macs --table gpt3-d1",
    "macs-preset-rules": "macs --preset llama3-8b --rules palm 6n",
    "macs-preset-moh": f"macs --preset moh-llm-s-75 {CLOSED}",
    "macs-preset-mla": f"macs --preset mla-llm-s {CLOSED} --brief",
    "macs-columns": COLUMNS,
    **in_formats("macs-columns", COLUMNS, "csv", "latex"),
    "macs-columns-wide": f"{PRESETS} --columns {' '.join(OF_LAYERS)} --context 512 --generate 20 --peak-macs 400e12 "
    "--bandwidth 4.8e12 --wide",
    "macs-grid-file": f"macs --grid lengths.toml {CLOSED}",
    "macs-grid-counted": "macs --grid 'K=2,3 E=2,5 D=7 d_m=11 T=13' --counter torch --check",
    "macs-grid-moh": f"macs --grid 'h=7 s=2 r=3 d_h=5 T=7,9' {CLOSED}",
    "macs-grid-csv": f"{GRID} --format csv",
    "macs-grid-json": f"macs --grid 'h=2 d_h=5 T=3' {CLOSED} --columns kv_bytes training_macs --format json",
    "macs-compare-json": "macs --compare model.py:make model.py:make,f=11 --format json",
    **in_formats("macs-compare", COMPARED, "md", "latex"),
    "macs-compare-modules": "macs --compare model.py:make model.py:make,f=11,n=4",
    "macs-convert-linear": "macs --preset llm-s --convert s=3 r=6 router=linear",
    **in_formats("macs-convert", CONVERTED, "json", "md", "latex"),
    "macs-module": MODULE,
    **in_formats("macs-module", MODULE, "md", "latex"),
    "macs-module-brief": f"{MODULE} --set n=7 --brief",
    "macs-module-json": f"{MODULE} --counter headcount --format json",
    "macs-module-csv": f"{MODULE} --counter headcount --format csv",
    "macs-module-unknown": "macs --module model.py:spectrum --counter headcount",
    "macs-module-allowed": "macs --module model.py:spectrum --counter headcount --allow-uncounted",
    "macs-module-formula": "macs --module model.py:spectrum --counter headcount --formula _fft_r2c=a0*8",
    "macs-module-elementwise": "macs --module model.py:elementwise --counter headcount",
}
DERIVE = {
    "derive": DERIVED,
    **in_formats("derive", DERIVED, "json", "md", "csv", "latex"),
    "derive-model": (
        "derive --preset mlm-transformer --set num_layers=1 --part model --vars T,d_model,d_ff,vocab_size"
    ),
    "derive-module": "derive --module model.py:cubic --vars T,D",
    "derive-no-polynomial": "derive --module model.py:padded --vars T",
}
BUDGETS = in_formats("budget", BUDGET, "md", "csv", "latex") | {
    "budget-like": "budget --like transformer-big --attention moa --params 250M --limit 2 --records none --format csv",
    "budget-several": "budget --macs 1.2G --params 200M --kv-bytes 64Ki --limit 3 --records none",
    "budget-any": "budget --macs 700M --any --range K=1:4 E=1:16 --limit 3 --records none",
    "budget-mla": "budget --preset mla-llm-s --macs 300G --limit 3 --records none",
}
ROUTING = {
    "routing": ROUTED,
    **in_formats("routing", ROUTED, "json", "md", "latex"),
    "routing-log": f"{ROUTED} --log log.jsonl --brief",
}
LOCK = {
    "lock-file": "lock --module model.py:make",
    **{name: [LOCKED, line] for name, line in in_formats("lock-check", CHANGED, "json", "md", "latex").items()},
    "lock-check-csv": [LOCKED, f"{CHANGED} --brief --format csv"],
    "lock-update": [LOCKED, "lock --update macs.lock --set f=11", "lock --check macs.lock"],
    "lock-unknown": "lock --module model.py:spectrum",
}
LATENCY = {
    "latency-list": "latency --list",
    **in_formats("latency-estimate", ESTIMATED, "csv", "md", "latex"),
    "latency-estimate": "latency --estimate --device a100 --layer moh-32x64-75 --pass both --seq-len 128",
    "latency-compare": TIMES,
    **in_formats("latency-compare", TIMES, "json", "md", "csv", "latex"),
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
