"""Which columns of headcount macs and headcount budget a terminal that narrows leaves out, the least needed first: what
stands nowhere else and what the table is about stay."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

import pytest

from headcount.bench.budget import __main__ as budget
from headcount.bench.macs import __main__ as macs
from tests.bench.output.reading import left_out

CLOSED = "--counter closed-form"
LEDGER = "elements; params active; sizes; params; share %; kind"
BY_KIND = "elements; params active; params; share %"
STEPS = "exact running total; rule running total; exact B; exact A; rule B; rule A"
LEAVING = {
    f"macs --table moa-table1 moh-llm jetmoe --params {CLOSED}": {
        "moa-table1": "params active; params printed En-Fr; params printed En-De; params exact; MACs under the rule",
        "moa-table1-vocabulary": "params printed En-Fr; params printed En-De",
        "moh-llm": "params exact trainable; MACs dense baseline; params printed; MACs MoH as released; "
        "activated by work %; params exact with frozen; ideal / baseline; MACs MoH ideal",
        "jetmoe": "params active; params printed; params exact",
    },
    "macs --table moh-table6 --counter torch ptflops-pytorch": {
        "moh-table6": "params counted trainable; shared of activated %; shared printed; MACs dense baseline; torch; "
        "ptflops pytorch; MACs MoH as released; activated by work %; params counted with frozen; ideal / baseline; "
        "MACs MoH ideal",
    },
    "macs --preset mlm-transformer --seq-len 7 --counter ptflops-aten": {
        "mlm-transformer": LEDGER,
        "mlm-transformer-kinds": BY_KIND,
        "mlm-transformer-counters": "device",
        "mlm-transformer-causes": "calls; what; place in the tool's source",
    },
    "macs --grid 'K=2 E=3 D=5 T=7' --counter torch": {
        "grid": "Eq. 19 same d_m; params active; params; torch; + router; + second T*S product; Eq. 18; "
        "exact / MHA same d_m",
    },
    f"macs --grid 'h=7 s=2 r=3 d_h=5 T=11' {CLOSED}": {
        "grid": "Eq. 19 same d_m; params active; params; of which routers; ideal / MHA same h, g; exact / MHA same d_m",
    },
    f"macs --compare moa-8K8E128D transformer-base {CLOSED}": {
        "compare-block": STEPS,
        "compare-kind": STEPS,
        "compare-params": "active B; active A; params B; params A",
        "compare-turns": "A - B there; A - B",
    },
    "macs --preset llama3-8b --convert s=16 r=8": {
        "conversion": "params; training step MACs",
        "stages": "tokens; model",
    },
    "macs --audit --device meta --counter torch": {
        "audit": "written with; torch; MACs exact",
        "audit-causes": "calls; what; formulations and devices; place in the tool's source; error vs exact",
    },
    "budget --macs 9G --range K=2 E=3 D=7": {
        "budget": "as a preset; KV cache bytes, 2 each; params active; params",
    },
}


@pytest.mark.parametrize("command", LEAVING)
def test_what_is_least_needed_goes_first(command):
    name, *words = shlex.split(command)
    module = {"macs": macs, "budget": budget}[name]
    found = {}
    for section in module.plan(module.parser().parse_args(words)).sections:
        # a table that comes row by row is laid out before its first row
        known = section if isinstance(section.rows, Sequence) else replace(section, rows=iter(()))
        found[section.table.name] = "; ".join(left_out(known))
    assert found == LEAVING[command]
