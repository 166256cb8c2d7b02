"""Facts are computed once, and a disagreement raises."""

import csv
from collections import Counter
from dataclasses import replace

import pytest

from headcount import CHECKOUT
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.counting.count import count, parse_counters
from headcount.bench.macs.published import ReproducedTable
from headcount.bench.targets.workers import Here
from headcount.formulas.published import tables
from headcount.formulas.published.expressions import expression
from headcount.reports import counting
from headcount.reports.counting import Disagreement
from headcount.reports.facts import Facts


class Listed(Here):
    """An executor that records calls and returns the place of each instead of counts."""

    def __init__(self):
        self.calls = []

    def submit(self, take, call, /, *args, **named):
        self.calls.append((call, args))
        return super().submit(lambda: args)


def test_equal_models_are_counted_once():
    executor = Listed()
    facts = Facts(executor, recount=True)
    for name in (*facts.of_paper("moa"), *facts.of_paper("moa")):
        rows = {row.name: row for row in facts.tables[name].rows}
        found = facts.reported(name)
        assert found.keys() == rows.keys()
        for row, (table, counted) in found.items():
            assert config(facts, table, counted) == config(facts, name, row)
    counted = [config(facts, *place) for _, place in executor.calls]
    models = {config(facts, name, row.name) for name in facts.of_paper("moa") for row in facts.tables[name].rows}
    assert Counter(counted) == dict.fromkeys(models, 1)


def config(facts, table, row):
    """Return the fields of the model of a row."""
    return facts.config(facts.tables[table].row(row).target)


def test_reported_counts_are_of_every_counter():
    found = counting.reported("moa-table3", "Base: 8K8E128D")
    assert [*found] == parse_counters(None)
    assert found["torch"] == Case.of("moa-8K8E128D").ledger.macs


def test_wrong_typed_verdict_raises():
    facts = Facts()
    table = facts.tables["moh-llm"]
    rows = (replace(table.rows[0], printed={**table.rows[0].printed, "params": "1M"}), *table.rows[1:])
    facts._regenerated = {"moh-llm": ReproducedTable(replace(table, rows=rows))}
    with pytest.raises(Disagreement, match="^moh-llm, LLM-S: the verdict is 'no rule found', typed as 'reproduced'$"):
        facts.closed("moh-llm")


@pytest.mark.parametrize(
    "text, letters, count",
    [
        ("moa_macs(E=E + 1) - moa_macs()", {"T": 7, "K": 2, "E": 3, "D": 5, "d_m": 11}, 7 * 11),
        ("moa_router_macs()", {"T": 7, "K": 2, "E": 3, "D": 5, "d_m": 11}, 7 * 11 * 3),
        ("moa_projection_macs()", {"T": 7, "K": 2, "E": 3, "D": 5, "d_m": 11}, 2 * (2 + 1) * 7 * 5 * 11),
        ("mha_params()", {"T": 7, "d_m": 11}, 4 * 11 * 11),
        ("moh_macs() - moh_ideal_macs()", {"T": 7, "h": 5, "s": 1, "r": 2, "d_h": 3, "g": 5, "d_m": 11},
         2 * (2 * 7 * 11 * 3 + 2 * 7 * 7 * 3)),
    ],
)  # fmt: skip
def test_costs_are_counted_on_built_layers(text, letters, count):
    assert Facts().cost(expression(text), letters) == count


def test_published_counts_are_current():
    """Count the smallest model of each table again."""
    by_table = {}
    for row in csv.DictReader((CHECKOUT / "reports" / "generated" / "tables.csv").read_text().splitlines()):
        by_table.setdefault(row["table"], []).append(row)
    assert by_table.keys() == {"moa-table1", "moa-table2", "moa-table3"}
    for name, rows in by_table.items():
        least = min(rows, key=lambda row: int(row["macs"]))
        found = count(Case.of(tables.load(name).row(least["row"]).target), registry.tools())
        assert {count.counter: str(count.macs) for count in found.tools}.items() <= least.items()
