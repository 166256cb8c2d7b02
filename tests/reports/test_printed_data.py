"""The printed data other than costs: quality, sizes, training and departures."""

import re
from dataclasses import fields, replace

from headcount.bench.case import Case
from headcount.formulas.published.departures import load
from headcount.models.configs.presets import preset
from headcount.reports import papers, tables
from headcount.reports.facts import Facts

FACTS = Facts()


def changed(name, index, **cells):
    """Return facts in which one entry of a data table has other cells."""
    facts = Facts()
    table = facts.data[name]
    entries = list(table.entries)
    entries[index] = {**entries[index], **cells}
    facts.data = {**facts.data, name: replace(table, entries=tuple(entries))}
    return facts


def test_presets_have_sizes_of_table_5():
    for entry in FACTS.data["moa-table5"].entries:
        config = preset(entry["preset"])
        printed = {key: size for key, size in entry.items() if key not in ("data", "preset")}
        assert {key: getattr(config, key) for key in printed} == printed


def test_update_costs_three_forward_passes():
    # three times the forward pass, of ten tokens
    per_token = 3 * Case.of("moa-8K8E128D").ledger.macs // 10
    assert of_run("En-De base", FACTS)["tokens an update"] == f"{8092 * 32:,}"
    training = of_run("En-De base", FACTS)["training MACs an update, TMACs"]
    assert training == f"{per_token * 8092 * 32 / 10**12:.1f}"
    again = changed("moa-table6", 0, accumulation=64)
    assert of_run("En-De base", again)["tokens an update"] == f"{8092 * 64:,}"


def of_run(name, facts):
    """Return the settings of a run, by the names of the rows."""
    lines = [line for line in tables.training(facts).splitlines() if line.startswith("| ")]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {row[0]: row[head.index(name)] for row in rows}


def test_rated_rows_have_exact_costs():
    text, found = tables.quality(FACTS), papers.rated(FACTS)
    assert len(found) == sum(len(FACTS.tables[name].rows) for name in FACTS.of_paper("moa"))
    for one in found:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {one.table} ") and f" {one.row} " in line)
        assert set(one.quality.values()) <= {cell.strip() for cell in line.split("|")}
        form = FACTS.ledger(FACTS.tables[one.table].row(one.row).preset)
        assert (one.macs, one.params) == (form.macs, form.params)
    assert {one.row for one in found if one.routed} == {
        one.row for one in found if preset(FACTS.tables[one.table].row(one.row).preset).attention.variant == "moa"
    }


def test_departures_name_config_fields():
    configs = {
        "moa": [preset("moa-8K8E128D"), preset("moa-8K8E128D").attention],
        "moh": [preset("moh-llm-s-75"), preset("moh-llm-s-75").layers[0]],
    }
    for one in load():
        names = {field.name for config in configs[one.paper] for field in fields(config)}
        assert one.field in names if one.field else one.no_field, one.what
    named = set(re.findall(r"{(\w+)", " ".join(one.consequence for one in load())))
    assert named == papers.departure_numbers(FACTS).keys()
