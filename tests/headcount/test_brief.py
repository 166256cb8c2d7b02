"""--brief: every command answers in one line of text, and leaves details out of files of tables."""

import json
import re
import shlex

import pytest

from headcount.__main__ import main

LAYER = "mha:h=3,d_h=5,d_m=7,T=11"


@pytest.mark.parametrize("words", [
    f"count {LAYER} --counter closed-form",
    f"count {LAYER} moa-8K8E128D --counter closed-form --columns macs kv_bytes",
    f"count {LAYER}",
    "count llama3-8b --plan tp=8,sp --counter closed-form",
    "count mha:h=3,d_h=5,d_m=7 --vary T=11,13",
    "table moa-table1 --counter closed-form",
    "grid 'h=2,3 d_h=5 d_m=7 T=3' --counter closed-form",
    "compare llama3-8b mistral-7b",
    "compare llama3-8b --rules palm 6n",
    "derive --preset transformer-base --part feed-forward --vars T",
    "fit llama3-8b --on 'H100 SXM' --context 128",
    "budget moa-8K8E128D --macs 1G",
])  # fmt: skip
def test_answer_is_one_line(words, capsys):
    main([*shlex.split(words), "--brief"])
    out, err = capsys.readouterr()
    assert out.endswith(".\n") and out.count("\n") == 1, out + err


def test_columns_are_in_the_line(capsys):
    assert main([*f"count {LAYER} --counter closed-form --columns macs kv_bytes --brief".split()]) == 0
    macs = 4 * 11 * 7 * 15 + 2 * 11 * 11 * 15
    assert capsys.readouterr().out.endswith(f" {LAYER}: macs {macs:,}, kv_bytes {11 * 60:,}.\n")


@pytest.mark.parametrize(("words", "key"), [
    ("budget moa-8K8E128D --macs 1G --limit 2", "target"),
    ("budget moa-8K8E128D --macs 1G --limit 2 --on h100-sxm", "target"),
    ("budget llama3-8b --ranks 8 --global-batch 8 --bytes 80G", "plan"),
])  # fmt: skip
def test_line_of_a_budget_names_the_first_row(words, key, capsys):
    main([*shlex.split(words), "--format", "json"])
    first, *_ = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    main([*shlex.split(words), "--brief"])
    line = capsys.readouterr().out
    assert re.search(rf" {re.escape(first[key])}(\.| is expected)", line) and line.count("\n") == 1


@pytest.mark.parametrize("words", [
    "fit llama3-8b --on h100-sxm --train --seq-len 512 --ranks 8", "fit llama3-405b --on h200-sxm --ranks 8",
    "fit llama3-405b --on all --ranks 8", "fit llama3-405b --on all --plan tp=8",
])  # fmt: skip
def test_line_of_fit_names_the_plan(words, capsys):
    main([*shlex.split(words)])
    plan = re.search(r"The rank that needs most of 8 under (\S+)\. ", " ".join(capsys.readouterr().out.split()))[1]
    main([*shlex.split(words), "--brief"])
    line = capsys.readouterr().out
    assert f" under {plan} needs " in line and line.count("\n") == 1


def test_file_of_tables_has_no_details(tmp_path):
    out = tmp_path / "tables"
    assert main([*f"count {LAYER} --counter closed-form --brief --format csv --out {out}/".split()]) == 0
    assert [file.name for file in out.iterdir()] == [f"{LAYER.replace(':', '-')}-kinds.csv".replace("=", "-")]
