"""Facts are computed once, and a disagreement raises."""

import csv
from collections import Counter
from dataclasses import replace

import pytest

from headcount import CHECKOUT
from headcount.bench import result_cache
from headcount.bench.case import Case
from headcount.bench.counters import registry
from headcount.bench.counting.case import count_case
from headcount.bench.isolated.workers import Here
from headcount.bench.macs.published import ReproducedTable
from headcount.bench.table import Row
from headcount.formulas.published import tables
from headcount.formulas.published.expressions import expression
from headcount.reports import counting
from headcount.reports.counting import Disagreement
from headcount.reports.facts import Facts


class Listed(Here):
    """An executor that records calls and returns an empty table row for each place."""

    def __init__(self):
        self.calls = []

    def submit(self, take, call, /, *args, **named):
        self.calls.append((call, args))
        rows = [Row({"row": row, "table": table}) for table, row in args[0]]
        return super().submit(lambda: result_cache.encode(rows))


def test_equal_models_are_counted_once():
    executor = Listed()
    facts = Facts(executor, recount=True)
    for name in (*facts.of_paper("moa"), *facts.of_paper("moa")):
        section = facts.counted(name)
        typed = [row.name for row in facts.tables[name].rows]
        assert [(row.values["table"], row.values["row"]) for row in section.rows] == [(name, row) for row in typed]
    places = [place for _, (group,) in executor.calls for place in group]
    assert Counter(places) == {(n, row.name): 1 for n in facts.of_paper("moa") for row in facts.tables[n].rows}
    presets = [{facts.tables[name].row(row).target for name, row in group} for _, (group,) in executor.calls]
    for preset in ("moa-8K8E128D", "transformer-big"):
        assert sum(preset in own for own in presets) == 1


def test_one_count_serves_every_table():
    places = (("moa-table1", "MoA Base 8K8E128D"), ("moa-table3", "Base: 8K8E128D"))
    one, other = counting.rows(places)
    assert (one.values["verdict"], other.values["verdict"]) == ("explained", "reproduced")
    assert one.values["macs_under_rule"] != other.values["macs_under_rule"]
    assert one.values["torch"] == other.values["torch"] == one.values["macs"]


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
        found = count_case(Case.of(tables.load(name).row(least["row"]).target), registry.NAMES)
        assert {count.counter: str(count.macs) for count in found.tools}.items() <= least.items()
