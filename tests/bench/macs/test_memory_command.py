"""Memory and decoding as columns: of a grid, a table and presets."""

import pytest

import headcount as hc

CLOSED = ["--counter", "closed-form"]


def test_grid_columns_match_hand_formulas(tables):
    argv = ["grid", "K=2 E=5 D=7 d_m=11 T=13 B=2", *CLOSED, "--element-bytes", "2", "--context", "17"]
    (row,) = tables(*argv, "--columns", "kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs")["grid"]
    row = row["accounts"]
    assert (row["kv_bytes"], row["kv_token_bytes"]) == (2 * 17 * 2 * 7 * 2, 2 * 7 * 2)

    def step(stored):
        return 2 * (11 * 5 + 2 * 2 * 11 * 7 + 2 * 11 * 7 + 2 * 2 * stored * 7)

    assert row["decode_macs"] == step(17)
    assert row["generate_macs"] == sum(step(stored) for stored in range(1, 18))


def test_ideal_columns_match_hand_formulas(tables):
    sizes = "h=7 s=2 r=3 d_h=5 d_m=11 T=13 B=2"
    (row,) = tables("grid", sizes, *CLOSED, "--columns", "kv_bytes", "decode_macs", "decode_bytes")["grid"]
    row = row["accounts"]
    routers, keys = 11 * (5 + 2 + 2), 2 * 11 * 35
    assert row["kv_bytes"] == 2 * 2 * 2 * 13 * 35
    assert row["decode_macs"] == 2 * (routers + keys + 2 * 11 * 35 + 2 * 13 * 35)
    assert row["decode_macs_ideal"] == 2 * (routers + keys + 2 * 11 * 25 + 2 * 13 * 25)
    # two sequences together may use all seven heads, each of them five
    weights = routers + keys + 2 * 11 * 35
    assert row["decode_bytes"] == 2 * (weights + 2 * 2 * 13 * 35 + 2 * 2 * 35)
    assert row["decode_bytes_ideal"] == 2 * (weights + 2 * 2 * 13 * 25 + 2 * 2 * 35)
    argv = ["count", "moh-llm-s-75", "llm-s", "--seq-len", "7", "--columns", "decode_macs", *CLOSED]
    rows = tables(*argv)["memory"]
    assert [(row["preset"], row["form"]) for row in rows] == [
        ("moh-llm-s-75", None),
        ("moh-llm-s-75", "ideal"),
        ("llm-s", None),
    ]
    dense, ideal, baseline = (row["decode_macs"] for row in rows)
    assert dense - ideal == 12 * 3 * 2 * 64 * (768 + 7)
    assert dense - baseline == 12 * 768 * (3 + 9 + 2)
    row = tables("table", "moh-llm", "--columns", "decode_macs", *CLOSED)["moh-llm"][0]["accounts"]
    assert row["decode_macs_ideal"] is None and row["missing"] == {"decode_macs_ideal": "every head is used"}


def test_preset_that_ran_has_bytes_moved(tables):
    layer = "moh:h=7,s=2,r=3,d_m=11,d_h=5,T=13"
    row, ideal = tables("count", layer, "--columns", "bytes_moved")["memory"]
    assert row["bytes_moved"] == hc.count(layer).bytes_moved > 0
    assert ideal["bytes_moved"] is None


@pytest.mark.parametrize("layer", ["mha:h=3,d_m=11,d_h=5,T=13", "mae:h=3,d_m=12,T=7", "moh:h=6,s=2,r=1,d_m=12,T=7"])
@pytest.mark.parametrize("options", [[], ["--backward"], ["--elementwise", "include"]], ids=str)
def test_columns_of_a_layer_are_its_count(tables, layer, options):
    found = tables("count", layer, *options, "--columns", "macs", "flops")
    (row, *ideal), total = found["memory"], found["modules"][0]["macs"]
    assert (row["macs"], row["flops"]) == (total, 2 * total)
    assert len(ideal) == (layer.startswith("moh") and not options)
    forward = hc.count(layer).macs
    assert total == forward if not options else total >= forward
    assert options != ["--backward"] or total > 2 * forward


def test_table_with_columns(command):
    code, out, _ = command(
        "table", "moa-table3", *CLOSED, "--format", "csv", "--columns", "verdict", "macs", "kv_bytes"
    )
    head, base, *_ = out.splitlines()
    # four attentions of 6 + 6 decoder layers share one context of 10 tokens: K, V of 128, two bytes each
    assert code == 0 and head == "row,verdict,macs,kv_bytes,notes"
    assert base == f"Base: 8K8E128D,reproduced,632258560,{2 * 6 * 10 * 2 * 128 * 2},"
    code, out, _ = command("table", "moh-llm", *CLOSED, "--format", "csv", "--columns", "decode_macs")
    assert code == 0 and out.startswith("row,decode_macs,decode_macs_ideal,notes\n")


@pytest.mark.parametrize("columns, names", [
    (["difference_exact"], ["compare-block", "compare-kind"]),
    (["a_params", "kv_bytes"], ["compare-params", "memory"]),
    (["letter", "above"], ["compare-crossovers"]),
])  # fmt: skip
def test_comparison_with_columns(columns, names, tables):
    both = ["compare", "moa-16K32E256D", "transformer-big", *CLOSED]
    assert list(tables(*both, "--columns", *columns)) == names


def test_numbers_of_options_take_units_and_types(tables):
    """A unit or the name of a type gives what the number gives."""
    columns = ["count", "llama3-8b", *CLOSED, "--columns", "decode_bytes", "decode_bound", "kv_bytes"]
    short = "--seq-len 1Ki --context 2k --weight-bytes int4 --cache-bytes fp8 --peak-macs 494.5T --bandwidth 3.35T"
    long = "--seq-len 1024 --context 2000 --weight-bytes 0.5 --cache-bytes 1 --peak-macs 494.5e12 --bandwidth 3.35e12"
    rows = [tables(*columns, *text.split())["memory"] for text in (short, long)]
    assert rows[0] == rows[1] and rows[0][0]["kv_bytes"] == 32 * 2 * 2000 * 8 * 128
