"""The printed data other than costs: quality, sizes, training and departures."""

import re
from dataclasses import fields

from headcount.bench.case import Case
from headcount.formulas.published.claims import load_departures
from headcount.models.configs.presets import preset
from headcount.reports import papers
from headcount.reports.blocks import tables
from headcount.reports.facts import Facts
from tests.reports.pipe_tables import rows_of

FACTS = Facts()


def test_presets_have_sizes_of_table_5():
    for entry in FACTS.data["moa-table5"].entries:
        config = preset(entry["preset"])
        printed = {key: size for key, size in entry.items() if key not in ("data", "preset")}
        assert {key: getattr(config, key) for key in printed} == printed


def test_update_costs_three_forward_passes():
    settings = {row["run"]: row for row in rows_of(tables.training(FACTS))}
    # three times the forward pass, of ten tokens
    per_token = 3 * Case.of("moa-8K8E128D").ledger.macs // 10
    training = settings["training MACs an update, TMACs"]["En-De base"]
    assert training == f"{per_token * 8092 * 32 / 10**12:.1f}"
    tokens = settings["tokens an update"]
    assert (tokens["En-De base"], tokens["En-De big"]) == (f"{8092 * 32:,}", f"{4096 * 64:,}")


def test_departures_name_config_fields():
    configs = {
        "moa": [preset("moa-8K8E128D"), preset("moa-8K8E128D").attention],
        "moh": [preset("moh-llm-s-75"), preset("moh-llm-s-75").layers[0]],
    }
    for one in load_departures():
        names = {field.name for config in configs[one.paper] for field in fields(config)}
        assert one.field in names if one.field else one.no_field, one.what
    named = set(re.findall(r"{(\w+)", " ".join(one.consequence for one in load_departures())))
    assert named == papers.departure_numbers(FACTS).keys()
