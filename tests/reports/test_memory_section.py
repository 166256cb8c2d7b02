"""The report's memory section: values of the command, and sentences that follow them."""

import json

import pytest

from headcount.reports import memory, results


def test_the_reading_follows_the_rows():
    row = {"layer": "x", "kv_token_bytes": 7, "decode_intensity": 0.5}
    rows = [row, row | {"layer": "y", "kv_token_bytes": 3, "decode_intensity": 0.25}]
    text = memory._reading(rows)
    assert "more than 0.50 MACs per byte" in text and "7 bytes of cache in x and 3 in y" in text


@pytest.fixture
def asked(monkeypatch):
    """What the command is asked for; it answers 13 for every value, and 11 for those of ideal forms."""
    argvs = []

    def command(*argv):
        argvs.append(argv)
        values = dict.fromkeys(memory.HEADS, 13) | {"decode_intensity": 0.25, "missing": {}}
        if "--preset" in argv:
            rows = [{"preset": "p", "form": form, **values} for form in (None, "ideal")]
            return json.dumps({"tables": [{"name": "p", "rows": []}, {"name": "memory", "rows": rows}]})
        if "s=2" in " ".join(argv):
            values |= {"decode_macs_ideal": 11, "peak_training_bytes_ideal": None}
            values["missing"] = {"peak_training_bytes_ideal": "nobody knows"}
        rows = [{"point": {"T": t}, "preset": "p", **values} for t in (17, 19)]
        ideal = [row | {"form": "ideal"} for row in rows if "decode_macs_ideal" in row]
        return json.dumps({"tables": [{"name": "grid", "rows": rows + ideal}]})

    monkeypatch.setattr(results, "command", command)
    memory._asked.cache_clear()
    yield argvs
    memory._asked.cache_clear()


def test_layers_come_from_the_command_routed_heads_in_both_forms(asked):
    text = memory.layers()
    forms = len(memory.LAYERS) + sum("s=2" in sizes for sizes in memory.LAYERS.values())
    assert text.count(" 17 |") == text.count(" 19 |") == forms
    assert "K=8 E=8 D=128 d_m=512 T=128,1024" in asked[3]
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| MoH")}
    assert {name: (row.count(" 11 |"), row.count(" – |")) for name, row in rows.items()} == {
        name: (1, 1) if name.endswith(", ideal") else (0, 0) for name in rows
    }
    names = "; ".join(f"{name}, ideal" for name, sizes in memory.LAYERS.items() if "s=2" in sizes)
    assert f"Dashes, training step, peak bytes of {names}: nobody knows." in text


def test_models_come_from_the_command_by_what_they_generate(asked):
    text = memory.models()
    assert text.count("| p, ideal") == 2
    assert "moa-16K32E256D" in asked[0] and "moh-llama3-8b" in asked[1]
    assert text.index("128 source tokens") < text.index("2,048 tokens generated")
