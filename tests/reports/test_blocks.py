"""Blocks of pages: printed data, MoH's models, ranks, and stored counts of other tools, against numbers by hand."""

import re
from dataclasses import fields
from fractions import Fraction

import pytest

from headcount.bench.case import Case
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.bench.macs import audit
from headcount.formulas.published.claims import load_departures
from headcount.models.configs.presets import preset
from headcount.reports import counting, papers
from headcount.reports.blocks import counters, moh, parallel, tables
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


def lines(text):
    """Return each row's cells without the first one."""
    return {first: cells for first, *cells in (row.values() for row in rows_of(text))}


def test_moh_models_match_their_baselines():
    found = lines(moh.released(FACTS)["table"])
    tables = ("moh-llm", "moh-llama3", "moh-dit", "moh-vit")
    routed = [row.name for name in tables for row in FACTS.tables[name].rows if row.baseline]
    assert list(found) == routed
    # MoH-LLM-S: 12 layers, width 768, 12 heads of 64, length 2048; routers of (12 - s) + s + 2 columns
    T, d_m, h, d_h = 2048, 768, 12, 64
    dense = 4 * T * d_m * h * d_h + 2 * h * T * T * d_h
    for name, k in (("MoH-LLM-S 75 %", 9), ("MoH-LLM-S 50 %", 6)):
        router_params, *numbers, attention, _ = found[name]
        baseline, released, ideal = (int(number.replace(",", "")) for number in numbers)
        skipped = (h - k) * (2 * T * d_m * d_h + 2 * T * T * d_h)
        routers = d_m * (h + 2)
        assert router_params == f"{12 * routers:,}"
        assert (released - baseline, baseline - ideal) == (12 * T * routers, 12 * (skipped - T * routers))
        assert attention == f"{100 * (dense - skipped + T * routers) / dense:.2f}"


def test_router_without_weights_adds_nothing():
    found = moh.released(FACTS)
    assert found["free"] == "MoH-LLaMA3-8B"
    params, baseline, released, *_ = lines(found["table"])["MoH-LLaMA3-8B"]
    assert params == "0" and released == baseline


def test_frozen_table_has_a_vector_per_patch():
    found = lines(moh.positions(FACTS)["table"])
    widths = {"DiT-S/2": 384, "DiT-B/2": 768, "DiT-L/2": 1024, "DiT-XL/2": 1152}
    for name, width in widths.items():
        assert found[name][0] == f"{256 * width:,}"


def test_dispatch_sends_less_where_ratio_is_below_one():
    rows = rows_of(parallel.dispatch(FACTS)["table"])
    assert len(rows) == 8
    for row in rows:
        K, E, D = map(int, re.fullmatch(r"(\d+)K(\d+)E(\d+)D", row["size"]).groups())
        less = [e for e in range(2, E + 1) if E % e == 0 and Fraction(K, e) + Fraction(D, 512) < 1]
        assert row["less at e ="] == (", ".join(map(str, less)) or "none")


def test_slowest_rank_of_moh():
    rows = rows_of(parallel.heads(FACTS)["table"])
    assert [(row["heads of a token"], row["key/value heads"]) for row in rows] == [("4", "1")] * 3 + [("3", "2")]
    # 32 layers, 2,048 tokens, two products of heads of width 128
    products = [int(row[parallel.PRODUCTS].replace(",", "")) for row in rows]
    assert products == [32 * 2 * heads * 2048**2 * 128 for heads in (4, 4, 4, 3)]


@pytest.mark.parametrize(
    "part, sentences",
    [
        (parallel.dispatch, ["formula"]),
        (parallel.heads, ["contiguous", "dealt", "nothing"]),
        (parallel.causal_blocks, ["holds"]),
    ],
)
def test_no_sentence_fails(part, sentences):
    found = part(FACTS)
    assert {found[name] for name in sentences} == {"holds"}


def test_error_is_percent_of_exact_count(monkeypatch):
    monkeypatch.setattr(audit, "FORMULATIONS", [one for one in FORMULATIONS if one.name == "mha-operator"])
    found = {(cell.counter, cell.device): cell for cell in counting.audit()}
    assert found["headcount", "meta"].difference == 0
    cell = found["ptflops-pytorch", "meta"]
    assert (cell.written, cell.device, cell.exact, cell.difference) == ("@", "meta", 180_672, 154_560)
    assert cell.error == Fraction(15_456_000, 180_672)
    assert sum(cause["macs"] for cause in cell.causes) == 154_560


def test_stored_run_matches_modules():
    stored = FACTS.stored_json(counters.RECORD)
    exact = {spelling.name: spelling.exact.macs for spelling in FORMULATIONS}
    assert exact.items() <= stored["exact"].items()
    models = stored["models"]
    assert stored["exact"].keys() == {*exact, *models}
    assert {name: Case.of(name).ledger.macs for name in models} == {name: stored["exact"][name] for name in models}
    # old versions count only linear layers: four nn.Linear of 48 features with biases, on B T or B S rows
    rows = 2 * (7 + 11 + 11 + 7)
    assert stored["readings"][0]["macs"]["mha-matmul"] == rows * 48 * 48 + 4 * 48
