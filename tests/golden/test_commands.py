"""Golden files of printed output: a file for each command line, at 80 columns.

``pytest tests/golden --snapshot-update`` rewrites them; review the diff. Commands whose whole output is in a guide
(reports/site/guides) are not stored here again.
"""

import sys

import pytest

from headcount.bench.accounts import ACCOUNTS
from tests.golden.conftest import normalised, run

CLOSED = "--counter closed-form"
PRESETS = "count moa-8K8E128D transformer-big"
OF_LAYERS = [name for name, one in ACCOUNTS.items() if not one.of_runs and not {"rule", "card"} & {*one.needs}]
"""Columns that every preset has; rules of training FLOPs need a language model."""
COLUMNS = f"{PRESETS} --columns kv_bytes decode_macs training_macs"
CONVERTED = "convert llama3-8b s=16 r=8"
MODULE = "audit model.py:make"
DERIVED = "derive --preset transformer-base --part feed-forward --vars T,d_ff"
BUDGET = "budget --macs 1.2G --attention moa --limit 2 --records none"
ROUTED = (
    "routing --checkpoint model.pt --tokens tokens.txt --min-count 1 --top 2 --preset mlm-moa-8K8E128D "
    "--set d_model=6 --set d_ff=5 --set num_layers=2 --set vocab_size=11 --set top_k=2 --set num_experts=3 "
    "--set head_dim=4"
)
LOCKED = "lock model.py:make -o macs.lock"
CHANGED = "lock --check macs.lock --set f=11"
ESTIMATED = "latency --estimate --on h200-sxm --layer mha-base --seq-len 128"
TIMES = "latency compare a.jsonl b.jsonl"


def in_formats(name, line, *formats):
    """Return the line by its name, once for each format."""
    return {f"{name}-{form}": f"{line} --format {form}" for form in formats}


HELP = {"help": " --help"} | {
    f"{words.replace(' ', '-')}-help": f"{words} --help"
    for words in (
        "count", "compare", "audit", "table", "grid", "convert", "latency", "latency compare", "latency gates",
        "latency campaign", "derive", "budget", "fit", "routing", "lock",
    )
}  # fmt: skip

COUNTS = {
    "table-list": "table --list",
    "table-params": f"table moa-table3 --params {CLOSED}",
    "table-forms": f"table moh-dit {CLOSED}",
    "grid-latex": f"grid 'K=1,2,4 E=8 D=64 T=10' {CLOSED} --format latex",
    "grid-mha-csv": f"grid 'h=8 d_h=64 T=10,128' {CLOSED} --format csv",
    "compare": f"compare moa-16K32E256D transformer-big {CLOSED}",
    "convert": "convert llama3-8b s=16 r=8",
    "fit": "fit llama3-8b --on 'H100 SXM' --context 8192 --batch-size 96",
    "fit-all": "fit llama3-8b --on all --train --seq-len 4096 --plan tp=8,sp",
    "count-preset-ledger": f"count moa-8K8E128D --seq-len 512 {CLOSED}",
    "count-columns-bound": f"{PRESETS} --context 512 --columns kv_bytes decode_macs decode_bytes decode_bound "
    "--peak-macs 400e12 --bandwidth 4.8e12",
    "count-columns-mfu": "count llama3-8b --vary T=8192 --rules palm "
    "--columns training_flops_per_token mfu --tokens 4194304 --seconds 20 --devices 512 --peak 'H100 SXM bf16'",
    "tables-closed": f"table {CLOSED}",
    "table3": f"table moa-table3 {CLOSED}",
    "table-libraries": "table timm torchvision --brief",
    "table-moh": f"table moh-llm moh-llama3 moh-vit {CLOSED}",
    "tables-others": f"table dense-anchors transnext moh-table6 moh-table-h jetmoe {CLOSED}",
    "table-md": f"table moa-table3 {CLOSED} --format md",
    "table-json": f"table jetmoe {CLOSED} --format json",
    "count-preset": "count mlm-moa-8K8E128D --counter all --seq-len 16",
    "count-preset-set": f"count moa-8K8E128D --set top_k=3 --set num_decoder_layers=1 --src-len 7 {CLOSED} --unit M",
    "count-preset-flops": f"{PRESETS} --flops --unit G",
    **in_formats("count-preset", f"{PRESETS} {CLOSED} --brief", "csv"),
    "table-gpt3": "table gpt3-d1",
    "compare-rules": "compare llama3-8b --rules palm 6n",
    "count-preset-moh": f"count moh-llm-s-75 {CLOSED}",
    "count-preset-mla": f"count mla-llm-s {CLOSED}",
    "count-columns": COLUMNS,
    **in_formats("count-columns", COLUMNS, "csv", "latex"),
    "count-columns-brief": f"{COLUMNS} {CLOSED} --brief",
    "count-across": "count llama3-8b mistral-7b --vary T=128,8k --across T",
    **in_formats("count-across", "count llama3-8b mistral-7b --vary T=128,8k --across T", "latex"),
    "count-columns-wide": f"{PRESETS} --columns {' '.join(OF_LAYERS)} --context 512 --generate 20 --peak-macs 400e12 "
    "--bandwidth 4.8e12 --wide",
    "grid-file": f"grid lengths.toml {CLOSED}",
    "grid-counted": "grid 'K=2,3 E=2,5 D=7 d_m=11 T=13' --counter torch --check",
    "grid-moh": f"grid 'h=7 s=2 r=3 d_h=5 T=7,9' {CLOSED}",
    "grid-target": f"grid moa:K=2,3,E=5,D=7,d_m=11,T=13 {CLOSED}",
    "count-layer": "count moa:K=2,E=5,D=7,d_m=11,T=13,B=2 --counter torch,fvcore",
    "count-layers": f"count moa:K=2,E=5,D=7,d_m=11,T=13 mha:h=2,d_h=7,d_m=11,T=13 {CLOSED} --columns kv_bytes",
    "lock-layer": "lock moa:K=2,E=5,D=7,d_m=11,T=13",
    "latency-estimate-target": "latency --estimate moa:K=2,E=8,D=64,d_m=512,T=128 --pass forward "
    "--implementation reference dense-all",
    "grid-json": f"grid 'h=2 d_h=5 T=3' {CLOSED} --columns kv_bytes training_macs --format json",
    "compare-json": "compare model.py:make model.py:make,f=11 --format json",
    "compare-modules": "compare model.py:make model.py:make,f=11,n=4",
    "convert-linear": "convert llm-s s=3 r=6 router=linear",
    **in_formats("convert", CONVERTED, "json"),
    "audit-module": MODULE,
    "audit-module-brief": f"{MODULE} --set n=7 --brief",
    "count-module-json": "count model.py:make --format json",
    "count-module-csv": "count model.py:make --format csv",
    "count-module-unknown": "count model.py:spectrum --counter headcount",
    "count-module-allowed": "count model.py:spectrum --counter headcount --allow-unsupported",
    "count-module-formula": "count model.py:spectrum --counter headcount --formula _fft_r2c=a0*8",
    "count-module-elementwise": "count model.py:elementwise --counter headcount",
}
DERIVE = {
    "derive": DERIVED,
    **in_formats("derive", DERIVED, "json", "csv", "latex"),
    "derive-model": (
        "derive --preset mlm-transformer --set num_layers=1 --part model --vars T,d_model,d_ff,vocab_size"
    ),
    "derive-module": "derive --module model.py:cubic --vars T,D",
    "derive-no-polynomial": "derive --module model.py:padded --vars T",
}
BUDGETS = in_formats("budget", BUDGET, "json", "csv") | {
    "budget-like-moh": "budget --match-model llama3-8b --attention moh --limit 5 --records none",
    "budget-like": "budget --match-model transformer-big --attention moa --params 250M --limit 2 --records none "
    "--format csv",
    "budget-several": "budget --macs 1.2G --params 200M --kv-bytes 64Ki --limit 3 --records none",
    "budget-any": "budget --macs 700M --all-integers --range K=1:4 E=1:16 --limit 3 --records none",
    "budget-mla": "budget mla-llm-s --macs 300G --limit 3 --records none",
}
ROUTING = {
    "routing": ROUTED,
    **in_formats("routing", ROUTED, "json"),
}
LOCK = {
    "lock-file": "lock model.py:make",
    "lock-check": [LOCKED, "lock --check macs.lock"],
    "lock-workflow": "lock --workflow",
    **{name: [LOCKED, line] for name, line in in_formats("lock-check", CHANGED, "json", "md").items()},
    "lock-check-csv": [LOCKED, f"{CHANGED} --brief --format csv"],
    "lock-update": [LOCKED, "lock --update macs.lock --set f=11", "lock --check macs.lock"],
    "lock-unknown": "lock model.py:spectrum",
}
LATENCY = {
    "latency-list": "latency --list",
    **in_formats("latency-estimate", ESTIMATED, "json", "csv"),
    "latency-estimate-wide": "latency --estimate --on h200-sxm --layer mha-base --seq-len 512 --wide",
    "latency-estimate": "latency --estimate --on a100-80gb-sxm --layer moh-32x64-75 --pass both --seq-len 128",
    "latency-compare": TIMES,
    **in_formats("latency-compare", TIMES, "json", "csv"),
    "latency-compare-devices": "latency compare --force a.jsonl elsewhere.jsonl",
}
CASES = HELP | COUNTS | DERIVE | BUDGETS | ROUTING | LOCK | LATENCY


@pytest.mark.parametrize("case", CASES)
def test_output(case, folder, snapshot):
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
