"""``python -m bench.macs --convert``: a dense preset's forms, their break-even, the paper's stages, and wrong usage."""

import json

from headcount.bench.case import Case
from headcount.bench.macs.__main__ import main


def run(capsys, *argv):
    code = main(list(argv))
    out = capsys.readouterr()
    return code, out.out, out.err


def tables(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--format", "json")
    assert code == 0
    return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}


def test_conversion_matches_moh_preset(capsys):
    (_, released, ideal) = tables(
        capsys, "--preset", "llm-s", "--set", "num_layers=2", "--convert", "s=3,2", "r=6,8", "router=linear"
    )["conversion"]
    fields = {"num_layers": 2, "num_shared_heads": (3, 2), "top_k": (6, 8)}
    case = Case.of("moh-llm-s-75", fields)
    assert (released["macs"], released["params"]) == (case.ledger.macs, case.ledger.params)
    assert (ideal["macs"], ideal["params"]) == (case.ideal_ledger.macs, case.ideal_ledger.params)


def test_break_even_length(capsys):
    """6 heads of width 2, 5 of them used: 4 d_m T and 4 T^2 saved in a layer, 8 d_m T spent on routers."""
    sizes = ["--set", "d_model=64", "num_heads=6", "head_dim=2", "--convert", "s=2", "r=3", "router=linear"]
    _, out, _ = run(capsys, "--preset", "llm-s", *sizes)
    assert "Break-even: ideal computes less than dense from 65 tokens on." in out
    macs = {}
    for length in ("64", "65"):
        rows = tables(capsys, "--preset", "llm-s", "--seq-len", length, *sizes)["conversion"]
        macs[length] = rows[2]["macs"] - rows[0]["macs"]
    assert macs["64"] == 0 > macs["65"]
