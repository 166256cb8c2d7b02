"""The printed sizes of JetMoE-8B again: parameters, and those that a token uses without the embedding."""

import json

from headcount.bench.macs.__main__ import main
from headcount.bench.macs.published import ReproducedTable
from headcount.formulas.published import tables


def test_jetmoe_sizes_are_reproduced(capsys):
    assert main(["--table", "jetmoe", "--counter", "closed-form", "--check", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert (row["params"], row["active_without_embedding"]) == (8_522_237_952, 2_265_909_248)
    # 24 layers, of 2048 x 32,000 words of which the embedding is left out
    assert row["active_params"] - row["active_without_embedding"] == 2048 * 32000
    assert row["verdict"] == "reproduced"


def test_other_models_print_other_sizes():
    """Twice the attention experts have other parameters, a third one per token other active ones."""
    table = tables.load("jetmoe")
    case = ReproducedTable(table).cases["JetMoE-8B"]
    for quantity, changed in (("params", case.at("E", 16)), ("active", case.at("K", 3))):
        column, (row,) = table.column(quantity), table.rows
        texts = [column.printing.text(column.total(one)) for one in (case, changed)]
        assert texts[0] == column.printed(row) != texts[1]
