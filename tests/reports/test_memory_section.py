"""The report's memory section: values of the command, and sentences that follow them."""

import json

from reports import memory, results


def test_the_reading_follows_the_rows(monkeypatch):
    row = {"layer": "x", "kv_token_bytes": 7, "decode_intensity": 0.5}
    rows = [row, row | {"layer": "y", "kv_token_bytes": 3, "decode_intensity": 0.25}]
    text = memory._reading(rows)
    assert "more than 0.50 MACs per byte" in text and "7 bytes of cache in x and 3 in y" in text


def test_layers_and_models_come_from_the_command(monkeypatch):
    asked = []

    def command(*argv):
        asked.append(argv)
        values = dict.fromkeys(memory.HEADS, 13) | {"decode_intensity": 0.25, "peak_training_bytes": None}
        rows = [{"point": {"T": t}, "preset": "p", **values} for t in (17, 19)]
        return json.dumps({"tables": [{"name": "p-memory", "rows": rows}]})

    monkeypatch.setattr(results, "command", command)
    memory._asked.cache_clear()
    text = memory.layers()
    assert text.count(" 17 |") == text.count(" 19 |") == len(memory.LAYERS)
    assert "–" in text and "K=8 E=8 D=128 d_m=512 T=128,1024" in asked[3]
    assert "128 source tokens" in memory.models() and "moa-16K32E256D" in asked[-1]
    memory._asked.cache_clear()
