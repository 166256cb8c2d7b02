"""Memory and decoding as columns of ``bench.macs``: beside a grid, a table or presets, and with wrong usage."""

import json
import re
import shlex

import pytest

from headcount.bench.macs.__main__ import main

CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    return main([*argv, *CLOSED]), *capsys.readouterr()


def test_columns_join_a_grid(capsys):
    argv = ["--grid", "K=2 E=5 D=7 d_m=11 T=13 B=2", "--format", "json", "--element-bytes", "2", "--context", "17"]
    code, out, _ = run(capsys, *argv, "--columns", "kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs")
    (row,) = json.loads(out)["tables"][0]["rows"]
    assert code == 0
    assert (row["kv_bytes"], row["kv_token_bytes"]) == (2 * 17 * 2 * 7 * 2, 2 * 7 * 2)

    def step(stored):
        return 2 * (11 * 5 + 2 * 2 * 11 * 7 + 2 * 11 * 7 + 2 * 2 * stored * 7)

    assert row["decode_macs"] == step(17)
    assert row["generate_macs"] == sum(step(stored) for stored in range(1, 18))


def test_several_grids_are_several_tables(capsys):
    code, out, _ = run(capsys, "--grid", "K=2 E=3 D=5 T=7 d_m=11", "h=2 d_h=5 T=7 d_m=11", "--format", "json")
    first, second = json.loads(out)["tables"]
    assert code == 0 and (first["name"], second["name"]) == ("grid", "grid-2")
    assert [row["point"] for row in first["rows"]] == [{"K": 2, "E": 3, "D": 5, "T": 7, "d_m": 11}]
    assert [row["point"] for row in second["rows"]] == [{"h": 2, "d_h": 5, "T": 7, "d_m": 11}]


def test_columns_join_a_table_and_a_preset(capsys):
    _, out, _ = run(capsys, "--table", "moa-table3", "--columns", "kv_bytes", "--format", "csv")
    assert out.splitlines()[0].endswith(",macs,kv_bytes,verdict,notes")
    argv = ["--preset", "moa-8K8E128D", "--columns", "kv_bytes", "decode_bound", "--peak-macs", "2e9", "--brief"]
    _, out, _ = run(capsys, *argv, "--bandwidth", "1e9", "--format", "csv")
    head, row = out.rstrip().splitlines()[-2:]
    assert (head, row) == ("row,kv_bytes,decode_bound,notes", f"moa-8K8E128D,{2 * 20 * 6 * 256},memory,")
    _, out, _ = run(capsys, *argv, "--bandwidth", "1e11", "--format", "csv")
    assert out.rstrip().endswith("compute,")


@pytest.mark.parametrize("asked", ["--table moa-table3", "--grid 'K=2 E=3 D=5 T=7'"])
def test_columns_beside_closed_forms_are_as_wide_as_what_they_hold(asked, capsys):
    _, out, _ = run(capsys, *shlex.split(asked), "--columns", "kv_bytes")
    lines = out.splitlines()
    rule, last = (number for number, line in enumerate(lines) if re.fullmatch("-+(  -+)*", line))
    table = [*lines[rule - 3 : rule], *lines[rule + 1 : last]]
    for column in re.finditer("-+", lines[rule]):
        assert max(len(line[slice(*column.span())].strip()) for line in table) == len(column[0])


def test_forms_that_skip_heads_stand_beside_those_that_do_not(capsys):
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
    _, out, _ = run(capsys, *argv, "--format", "csv")
    named = [name for name in out.splitlines()[0].split(",") if re.match("kv_|decode_", name)]
    assert named == ["kv_bytes", "decode_macs", "decode_macs_ideal", "decode_bytes", "decode_bytes_ideal"]
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


def test_a_presets_record_says_what_it_has_no_account_of(capsys):
    _, out, _ = run(
        capsys, "--preset", "dit-s2", "--columns", "kv_bytes", "--counter", "closed-form", "--format", "json"
    )
    ((row,),) = (table["rows"] for table in json.loads(out)["tables"] if table["name"] == "memory")
    assert row["kv_bytes"] is None and row["missing"].keys() == {"kv_bytes"}


def test_a_table_with_columns_keeps_its_notes_and_has_theirs(capsys):
    argv = ["--table", "moa-table3", "--counter", "closed-form", "--columns", "kv_bytes"]
    _, out, _ = run(capsys, *argv)
    before, _, _ = out.partition("---")
    assert "Rule: Every linear layer" in before and "2 bytes per element." in before


def test_heads_say_how_many_bytes_a_number_takes(capsys):
    argv = ["--preset", "llm-s", "--seq-len", "7", "--columns", "kv_bytes", "decode_macs", "--format", "md"]
    for given, each in (([], 2), (["--element-bytes", "3"], 3)):
        _, out, _ = run(capsys, *argv, *given)
        assert f"KV cache bytes, {each} each" in out and f"{each} bytes per element." in out
        assert "decode step MACs |" in out


DECODES_NONE = {"mlm-transformer": "reads its tokens at once", "dit-s2": "makes its image"}


@pytest.mark.parametrize("preset", DECODES_NONE)
def test_a_model_that_does_not_decode_has_dashes_and_says_why(preset, capsys):
    names = ["kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs", "generate_bytes"]
    _, out, _ = run(capsys, "--preset", preset, "--columns", *names)
    table, below = out.rpartition("---\n")[::2]
    assert table.splitlines()[-2].count("–") == len(names)
    said = " ".join(below.split())
    assert f"no {', '.join(names)}: " in said and DECODES_NONE[preset] in said


WRONG = {
    "unknown": (
        ["--columns", "kv"],
        "unknown column 'kv'; did you mean kv_token_bytes or kv_bytes? headcount macs --list names all 14",
    ),
    "twice": (["--columns", "kv_bytes", "kv_bytes"], "a column is given twice in kv_bytes, kv_bytes"),
    "no peaks": (["--columns", "decode_bound", "--peak-macs", "1"], "decode_bound needs --peak-macs and --bandwidth"),
    "no columns": (["--context", "7"], "--context needs --columns"),
    "infinite": (["--columns", "kv_bytes", "--peak-macs", "inf"], "argument --peak-macs: invalid float value: 'inf'"),
    "no number": (["--columns", "kv_bytes", "--bandwidth", "nan"], "argument --bandwidth: invalid float value: 'nan'"),
    "zero": (["--columns", "kv_bytes", "--element-bytes", "0"], "--element-bytes must be at least 1, not 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_columns_are_one_line(case, capsys):
    argv, message = WRONG[case]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err
