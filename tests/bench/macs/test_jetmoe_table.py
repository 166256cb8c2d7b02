"""The printed sizes of JetMoE-8B: parameters, and active parameters without the embedding."""

import json

from headcount.bench.macs.__main__ import main


def test_jetmoe_sizes_are_reproduced(capsys):
    assert main(["--table", "jetmoe", "--counter", "closed-form", "--check", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert (row["params"], row["active_without_embedding"]) == (8_522_237_952, 2_265_909_248)
    # 24 layers, of 2048 x 32,000 words of which the embedding is left out
    assert row["active_params"] - row["active_without_embedding"] == 2048 * 32000
    assert row["verdict"] == "reproduced"
