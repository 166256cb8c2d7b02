"""The report's memory section: accounts of layers as released and ideal."""

from headcount.reports import papers
from headcount.reports.counting import ASSUMED
from headcount.reports.facts import Facts

NAMES = (*papers.DECODING, *papers.TRAINING)


def test_layer_has_a_row_per_form():
    facts = Facts()
    dense = facts.layer_accounts("h=5 d_h=3 d_m=15 T=7,11", NAMES)
    assert [(row["T"], row["form"]) for row in dense] == [(7, ""), (11, "")]
    assert [row["kv_token_bytes"] for row in dense] == 2 * [2 * 5 * 3 * ASSUMED.element_bytes]
    released, ideal = facts.layer_accounts("h=5 s=1 r=2 d_h=3 d_m=15 T=7", NAMES)
    assert released["kv_bytes"] == ideal["kv_bytes"] == 7 * 2 * 5 * 3 * ASSUMED.element_bytes
    # of queries, outputs, scores and values two heads of five are skipped
    assert released["decode_macs"] - ideal["decode_macs"] == 2 * (2 * 15 * 3 + 2 * 7 * 3)
