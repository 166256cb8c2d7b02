"""Memory and decoding as columns of ``bench.macs``: of a grid, a table and presets."""

import json

import pytest

from headcount.bench.macs.__main__ import main

CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    return main([*argv, *CLOSED]), *capsys.readouterr()


def test_grid_columns_match_hand_formulas(capsys):
    argv = ["--grid", "K=2 E=5 D=7 d_m=11 T=13 B=2", "--format", "json", "--element-bytes", "2", "--context", "17"]
    code, out, _ = run(capsys, *argv, "--columns", "kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs")
    (row,) = json.loads(out)["tables"][0]["rows"]
    assert code == 0
    assert (row["kv_bytes"], row["kv_token_bytes"]) == (2 * 17 * 2 * 7 * 2, 2 * 7 * 2)

    def step(stored):
        return 2 * (11 * 5 + 2 * 2 * 11 * 7 + 2 * 11 * 7 + 2 * 2 * stored * 7)

    assert row["decode_macs"] == step(17)
    assert row["generate_macs"] == sum(step(stored) for stored in range(1, 18))


def test_ideal_columns_match_hand_formulas(capsys):
    sizes = "h=7 s=2 r=3 d_h=5 d_m=11 T=13 B=2"
    argv = ["--grid", sizes, "--format", "json", "--columns", "kv_bytes", "decode_macs", "decode_bytes"]
    _, out, _ = run(capsys, *argv)
    row = json.loads(out)["tables"][0]["rows"][0]
    routers, keys = 11 * (5 + 2 + 2), 2 * 11 * 35
    assert row["kv_bytes"] == 2 * 2 * 2 * 13 * 35
    assert row["decode_macs"] == 2 * (routers + keys + 2 * 11 * 35 + 2 * 13 * 35)
    assert row["decode_macs_ideal"] == 2 * (routers + keys + 2 * 11 * 25 + 2 * 13 * 25)
    # two sequences together may use all seven heads, each of them five
    weights = routers + keys + 2 * 11 * 35
    assert row["decode_bytes"] == 2 * (weights + 2 * 2 * 13 * 35 + 2 * 2 * 35)
    assert row["decode_bytes_ideal"] == 2 * (weights + 2 * 2 * 13 * 25 + 2 * 2 * 35)
    argv = ["--preset", "moh-llm-s-75", "llm-s", "--seq-len", "7", "--columns", "decode_macs", "--format", "json"]
    _, out, _ = run(capsys, *argv)
    rows = json.loads(out)["tables"][-1]["rows"]
    assert [(row["preset"], row["form"]) for row in rows] == [
        ("moh-llm-s-75", None),
        ("moh-llm-s-75", "ideal"),
        ("llm-s", None),
    ]
    dense, ideal, baseline = (row["decode_macs"] for row in rows)
    assert dense - ideal == 12 * 3 * 2 * 64 * (768 + 7)
    assert dense - baseline == 12 * 768 * (3 + 9 + 2)
    _, out, _ = run(capsys, "--table", "moh-llm", "--columns", "decode_macs", "--format", "json")
    row = json.loads(out)["tables"][0]["rows"][0]
    assert row["decode_macs_ideal"] is None and row["missing"] == {"decode_macs_ideal": "every head is used"}


def test_table_with_columns(capsys):
    code, out, _ = run(capsys, "--table", "moa-table3", "--format", "csv", "--columns", "verdict", "macs", "kv_bytes")
    head, base, *_ = out.splitlines()
    # four attentions of 6 + 6 decoder layers share one context of 10 tokens: K, V of 128, two bytes each
    assert code == 0 and head == "row,verdict,macs,kv_bytes,notes"
    assert base == f"Base: 8K8E128D,reproduced,632258560,{2 * 6 * 10 * 2 * 128 * 2},"
    code, out, _ = run(capsys, "--table", "moh-llm", "--format", "csv", "--columns", "decode_macs")
    assert code == 0 and out.startswith("row,decode_macs,decode_macs_ideal,notes\n")


@pytest.mark.parametrize("columns, tables", [
    (["difference_exact"], ["compare-block", "compare-kind"]),
    (["a_params", "kv_bytes"], ["compare-params", "memory"]),
    (["letter", "above"], ["compare-crossovers"]),
])  # fmt: skip
def test_comparison_with_columns(columns, tables, capsys):
    both = ["--compare", "moa-16K32E256D", "transformer-big", "--format", "json"]
    code, out, _ = run(capsys, *both, "--columns", *columns)
    assert (code, [table["name"] for table in json.loads(out)["tables"]]) == (0, tables)


def test_unknown_column_lists_those_of_the_table(capsys):
    for argv in (["--table", "moa-table3"], ["--compare", "moa-8K8E128D", "transformer-base"]):
        code, out, err = run(capsys, *argv, "--columns", "kv_byte")
        assert (code, out) == (2, "") and "unknown column 'kv_byte'; did you mean kv_bytes" in err
        assert "these tables have" in err and len(err.splitlines()) == 1
    code, _, err = run(capsys, "--grid", "K=2 E=5 D=7 T=13", "--columns", "verdict")
    assert code == 2 and "unknown column 'verdict'" in err
