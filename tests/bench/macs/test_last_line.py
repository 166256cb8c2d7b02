"""What came out, in one sentence: the last line of headcount macs, which JSON has too."""

import json
import re
import shlex

import pytest

from headcount.bench.case import Case
from headcount.bench.counters import base
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.bench.macs import audit, results
from headcount.bench.macs.__main__ import main
from headcount.bench.table import Column, Row, Section, Table

CLOSED = "--counter closed-form"
ONE_HEAD = 12 * (2 * 2048 * 768 * 64 + 2 * 2048 * 2048 * 64)
"""Of LLM-S: 12 layers, 2,048 tokens, d_m = 768, d_h = 64; its keys and values, which ideal MoH has too, apart."""
ROUTERS = 12 * 2048 * 768 * (12 + 2)
SAID = {
    f"--table moa-table3 {CLOSED}": "8 printed MACs: 7 reproduced, 1 explained.",
    f"--table moa-table1 moa-table2 {CLOSED}": "16 printed MACs: 8 reproduced, 3 explained, 5 no rule.",
    f"--table moh-table-h {CLOSED}": "2 printed shares: 2 reproduced.",
    f"--table jetmoe {CLOSED}": "1 printed row: 1 reproduced.",
    f"--table moh-table-h moa-table3 {CLOSED}": "10 printed rows: 9 reproduced, 1 explained.",
    "--grid 'K=2,3 E=2 D=3 T=5' --counter torch": (
        "1 point, 1 left out; counts that differ from their counter's rules: 0 of 1."
    ),
    f"--compare moh-llm-s-75,form=ideal llm-s {CLOSED}": (
        f"A: {3 * ONE_HEAD - ROUTERS:,} MACs less than B; 3 crossovers (h of A, s of A, r of A)."
    ),
    f"--compare llm-s moh-llm-s-75,form=ideal {CLOSED} --flops": (
        f"A: {2 * (3 * ONE_HEAD - ROUTERS):,} FLOPs more than B; 3 crossovers (h of B, s of B, r of B)."
    ),
    f"--compare llm-s llm-s {CLOSED}": "A: as many MACs as B; no crossover.",
}


def last_line(capsys, *argv):
    main([*argv, "--format", "json"])
    return json.loads(capsys.readouterr().out)["result"]


@pytest.mark.parametrize("command", SAID)
def test_the_result_is_said_in_a_sentence(command, capsys):
    assert last_line(capsys, *shlex.split(command)) == SAID[command]


@pytest.mark.parametrize("difference, said", [(1, "1 MACs more than B"), (-1, "1 MACs less than B")])
def test_one_multiply_accumulate_is_a_difference(difference, said):
    table = Table("compare", "A against B", [Column("difference", "A - B")])
    assert results.compared([Section(table, [Row({"difference": difference}, total=True)])], False) == f"A: {said}."


def test_parameters_that_a_token_leaves_alone_are_told_apart(capsys):
    said = last_line(capsys, "--preset", "moa-8K32E64D", "transformer-base", "--counter", "closed-form")
    routed, dense = said.split("; ")
    params, active = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:parameters|of them)", routed))
    # 24 of 32 experts, in 18 attentions: a query and an output matrix each
    assert params - active == 18 * 24 * 2 * 512 * 64 and "active" not in dense


def test_counts_that_are_not_as_predicted_are_counted(capsys, monkeypatch):
    monkeypatch.setattr(base, "predict", lambda tool, ledger, device: 7)
    said = last_line(capsys, "--grid", "h=2 d_h=3 T=5,7", "--counter", "torch")
    assert said == "2 points, 0 left out; counts that differ from their counter's rules: 2 of 2."


def test_an_audit_says_how_many_cells_are_exact_explained_and_failed(capsys, monkeypatch):
    # biases are ptflops-aten's own; FlexAttention does not run on meta
    monkeypatch.setattr(audit, "FORMULATIONS", [s for s in FORMULATIONS if s.name in ("mha-matmul", "mha-flex")])
    said = last_line(capsys, "--audit", "--device", "meta", "--counter", "ptflops-aten", "torch")
    assert said == "4 runs: 1 exact, 1 explained, 2 failed; 0 not explained."


def test_the_readings_of_a_module_are_counted_where_its_calls_explain_them():
    facts = {"macs": 1_001, "headline": "exact", "params": 2_003}
    cells = [Row({"explained": word}) for word in ("right", "explained", "failed", "unexplained", "the same part")]
    ledger = Section(Table("module", "M", [Column("path", "module")]), [], facts=facts)
    counters = Section(Table("module-counters", "counters", [Column("explained", "explained")]), cells)
    said = "2,003 parameters"
    assert results.of_module([ledger], in_flops=False) == f"1,001 MACs (exact), {said}."
    assert results.of_module([ledger, counters], in_flops=True) == (
        f"2,002 FLOPs (exact), {said}; 3 of 5 reported counts explained by the trace."
    )


def test_a_conversion_ends_with_what_ideal_costs_and_from_where_on_that_is_less(capsys):
    said = last_line(capsys, "--preset", "llm-s", "--convert", "s=4", "r=5", "router=linear")
    dense, ideal = (Case.of(*of).ledger.macs for of in (("llm-s",), ("moh-llm-s-75", {"form": "ideal"})))
    start, _, end = said.partition(" % of dense. ")
    assert start == f"Ideal: {ideal:,} MACs, {100 * ideal / dense:.2f}"
    assert end == "Break-even: none; ideal computes less than dense at every length."
