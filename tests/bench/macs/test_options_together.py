"""Options of headcount macs that do not go together: a line says which, typed whole, and nothing is counted."""

import shlex

import pytest

from headcount.bench.macs.__main__ import main

OF_MODULES = "--depth, --allow-uncounted, --elementwise and --formula go with --module"
LENGTHS = "go with --preset or --compare; a table has its paper's sizes, a grid its own"
CONVERTED = "--convert goes without --table, --grid, --columns and --counter: its rows are closed forms"
CONVERT = "--preset llama3-8b --convert s=16 r=8"
COMPARE = "--compare moa-8K8E128D transformer-base"
TOGETHER = {
    "--depth 2": OF_MODULES,
    "--allow-uncounted --preset llm-s": OF_MODULES,
    "--elementwise include --table moa-table1": OF_MODULES,
    "--formula x=a --audit": OF_MODULES,
    f"{COMPARE} --columns kv_bytes": "--columns goes with --table, --preset and --grid",
    "--audit --columns kv_bytes": "--columns goes with --table, --preset and --grid",
    "--module x.py:f --columns kv_bytes": "--columns goes with --table, --preset and --grid",
    f"{COMPARE} --table moa-table1": "--compare goes without --table, --preset and --grid",
    f"{COMPARE} --preset llm-s": "--compare goes without --table, --preset and --grid",
    f"{COMPARE} --grid 'K=1'": "--compare goes without --table, --preset and --grid",
    "--convert s=16 r=8": "--convert goes with --preset, the dense model",
    f"{CONVERT} --table moa-table1": CONVERTED,
    f"{CONVERT} --grid 'K=1'": CONVERTED,
    f"{CONVERT} --columns kv_bytes": CONVERTED,
    f"{CONVERT} --counter torch": CONVERTED,
    "--table moa-table1 --seq-len 7": f"--seq-len {LENGTHS}",
    "--grid 'K=1' --src-len 7 --batch-size 3 --set top_k=2": f"--src-len, --batch-size, --set {LENGTHS}",
    "--module x.py:f --seq-len 7 --table moa-table1": (
        "--seq-len, --table and --module do not go together; sizes of a module are set by --set NAME=INTEGER"
    ),
    "--module x.py:f --depth 0": "--depth must be at least 1, not 0",
    "--published torchvision": "--published was removed; count a torchvision model with --module FILE.py:FUNCTION",
    "--preset llm-s --context 7 --peak-macs 1e9": "--context, --peak-macs needs --columns",
    "--preset llm-s --columns kv_bytes --generate 0": "--generate must be at least 1, not 0",
}


@pytest.mark.parametrize("words", TOGETHER)
def test_what_does_not_go_together_is_said_in_a_line(words, capsys):
    assert main(shlex.split(words)) == 2
    assert capsys.readouterr() == ("", f"python -m bench.macs: error: {TOGETHER[words]}\n")
