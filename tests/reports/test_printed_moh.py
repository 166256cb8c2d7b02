"""MoH's printed models: released code against ideal, and the frozen position table."""

from headcount.reports.blocks import moh
from headcount.reports.facts import Facts
from tests.reports.pipe_tables import rows_of

FACTS = Facts()


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
