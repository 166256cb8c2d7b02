"""The report's memory section: values of the accounts, and sentences that follow them."""

from fractions import Fraction

from headcount.reports import papers
from headcount.reports.facts import Facts
from headcount.reports.pages import choose

NAMES = (*papers.DECODING, *papers.TRAINING)


def test_the_reading_follows_the_rows():
    row = {"layer": "x", "kv_token_bytes": 7, "decode_intensity": Fraction(1, 2)}
    rows = [row, row | {"layer": "y", "kv_token_bytes": 3, "decode_intensity": Fraction(1, 4)}]
    text = choose._reading(rows)
    assert "more than 0.50 MACs per byte" in text and "7 bytes of cache in x and 3 in y" in text
    assert "more than 0.51 MACs" in choose._reading([row | {"decode_intensity": Fraction(501, 1000)}])


class Small(Facts):
    """13 for every account of every layer at 17 and 19 tokens; MoH has an ideal form, of which one is not known."""

    def layer_accounts(self, spec, names):
        values = dict.fromkeys(names, 13) | {"missing": {}}
        unknown = {"decode_macs": 11, "peak_training_bytes": None, "missing": {"peak_training_bytes": "nobody knows"}}
        forms = {"": {}} if "s=2" not in spec else {", as released": {}, ", ideal": unknown}
        return [{"T": t, "form": form, **values, **own} for t in (17, 19) for form, own in forms.items()]


def test_layers_stand_by_length_routed_heads_in_both_forms():
    text = choose.layers(Small())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if " 13 |" in line]
    decoding, training = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert [row[:2] for row in decoding] == [row[:2] for row in training]
    rows = [one + other[2:] for one, other in zip(decoding, training, strict=True)]
    routed = [name for name, sizes in papers.LAYERS.items() if "s=2" in sizes]
    assert [row[1] for row in rows] == ["17"] * (len(rows) // 2) + ["19"] * (len(rows) // 2)
    assert len(rows) == 2 * (len(papers.LAYERS) + len(routed))
    ideal = [row for row in rows if row[0].endswith(", ideal")]
    assert [row[0] for row in ideal] == 2 * [f"{name}, ideal" for name in routed]
    assert all((row.count("11"), row.count("–")) == (1, 1) for row in ideal)
    names = "; ".join(f"{name}, ideal" for name in routed)
    assert f"Dashes, training peak bytes of {names}: nobody knows." in text


def test_a_layer_has_a_row_for_each_form_that_it_has():
    facts = Facts()
    dense = facts.layer_accounts("h=5 d_h=3 d_m=15 T=7,11", NAMES)
    assert [(row["T"], row["form"]) for row in dense] == [(7, ""), (11, "")]
    assert [row["kv_token_bytes"] for row in dense] == 2 * [2 * 5 * 3 * facts.element_bytes]
    released, ideal = facts.layer_accounts("h=5 s=1 r=2 d_h=3 d_m=15 T=7", NAMES)
    assert (released["form"], ideal["form"]) == (", as released", ", ideal")
    assert released["kv_bytes"] == ideal["kv_bytes"] == 7 * 2 * 5 * 3 * facts.element_bytes
    # of queries, outputs, scores and values two heads of five are skipped
    assert released["decode_macs"] - ideal["decode_macs"] == 2 * (2 * 15 * 3 + 2 * 7 * 3)


def test_models_are_named_by_form_and_by_what_they_generate():
    text = choose.models(Facts())
    heads = [line for line in text.splitlines() if line.startswith("| preset")]
    # decoding, and generation beside training, of each of two groups
    assert len(heads) == 4
    for name in (*papers.TRANSLATION, *papers.LANGUAGE, "moh-llm-s-75, ideal", "moh-llama3-8b, ideal"):
        assert f"| {name} " in text
    assert text.index("128 source tokens") < text.index("transformer-big") < text.index("2,048 tokens generated")
