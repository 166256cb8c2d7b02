"""Times that ``headcount fit`` prints beside what it holds."""

import json
import shlex
from dataclasses import replace

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.budget.fit import main
from headcount.bench.card_times import DECODE, PREFILL, TRAINING, time_rows
from headcount.bench.case import Case
from headcount.bench.hardware import HARDWARE
from headcount.formulas.plan import parse
from tests.bench.targets.conftest import LLAMA, write

H200 = HARDWARE["h200"]
CASE = Case.of("llama3-8b", {}, {"seq_len": 4096, "batch_size": 4})


def rows(training, plan=None):
    case = replace(CASE, plan=plan and parse(plan))
    found = time_rows(case, H200, Assumptions(), passes=(TRAINING,) if training else (PREFILL, DECODE))
    return {row.what: row for row in found}


def test_one_card_has_the_times_of_the_model():
    alone = {row.what: row for row in time_rows(CASE, H200, Assumptions())}
    assert rows(False) == {what: alone[what] for what in ("prefill", "decode step")}
    assert rows(True) == {"training step": alone["training step"]}


def test_plan_of_one_card_takes_the_same_time():
    for training in (False, True):
        for what, row in rows(training, "dp=1").items():
            alone = rows(training)[what]
            assert row.expected_ms == pytest.approx(alone.expected_ms) and row.mfu == pytest.approx(alone.mfu)
            assert row.tokens == alone.tokens


def test_tensor_parallel_decodes_faster_and_waits():
    one, four = rows(False)["decode step"], rows(False, "tp=4")["decode step"]
    assert one.expected_ms / 4 < four.expected_ms < one.expected_ms


def test_data_parallel_has_more_tokens():
    one, four = rows(True)["training step"], rows(True, "dp=4,mb=2")["training step"]
    assert four.tokens == 8 * one.tokens
    assert four.mfu == pytest.approx(one.mfu, rel=0.05)


def test_stages_decode_one_after_another():
    one, four = rows(False)["decode step"], rows(False, "pp=4")["decode step"]
    assert four.expected_ms == pytest.approx(one.expected_ms, rel=0.01)


def run(line, capsys):
    code = main([*shlex.split(line), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_narrow_weights_decode_faster(capsys):
    _, wide = run("llama3-8b --on h200-sxm", capsys)
    _, narrow = run("llama3-8b --on h200-sxm --weights int4", capsys)
    (wide, narrow) = (
        {row["what"]: row["expected_ms"] for row in found["tables"][1]["rows"]} for found in (wide, narrow)
    )
    assert narrow["decode step"] < 0.6 * wide["decode step"]


def test_bytes_alone_have_no_time(capsys):
    _, found = run("llama3-8b --on 80G", capsys)
    assert len(found["tables"]) == 1


@pytest.mark.parametrize("words, unknown", [
    (["--on", "TPU v4", "--plan", "tp=2"], "the rate of Google TPU v4's links in a node"), (["--on", "TPU v4"], ""),
    (["--on", "L40S", "--plan", "tp=2"], ""), (["--on", "80G", "--plan", "tp=2"], ""),
])  # fmt: skip
def test_missing_times_have_a_reason(words, unknown, capsys):
    assert main(["llm-s", *words]) == 0
    printed = capsys.readouterr().out
    assert (f"No times: {unknown} is not known." in printed) == ("No times" in printed) == bool(unknown)


def rates_of(line, capsys, step=1):
    """Return the tokens per second of rows of ``--on all``, one of ``step``, and those of card and plan alone."""
    _, found = run(f"{line} --on all", capsys)
    rows = {row["card"]: row for row in found["tables"][0]["rows"][::step]}
    alone = {}
    for card, row in rows.items():
        plan = f"--plan {row['plan']}" if row["plan"] else ""
        has_plan = row["fewest_cards"] is not None or row["verdict"] == "fits"
        _, found = run(f"{line} {plan} --on '{card}'", capsys) if has_plan else (1, {"tables": []})
        times = [one for table in found["tables"][1:] for one in table["rows"] if one["what"] in (DECODE, TRAINING)]
        alone[card] = times[0]["tokens_per_s"] if times else None
    return {card: row["tokens_per_s"] for card, row in rows.items()}, alone


@pytest.mark.parametrize("line, step", [
    ("llama3-8b --context 8Ki --batch-size 40", 1), ("llama3-8b --train --seq-len 512", 4),
    ("llama3-8b --plan tp=2", 4), ("llama3-8b --weights int4", 4), ("llama3-8b --dtype float32", 4),
])  # fmt: skip
def test_cards_have_the_tokens_per_second_of_their_plans(line, step, capsys):
    found, alone = rates_of(line, capsys, step)
    assert {card for card, rate in found.items() if rate} == {card for card, rate in alone.items() if rate}
    assert {card: rate for card, rate in found.items() if rate} == pytest.approx(
        {card: rate for card, rate in alone.items() if rate}
    )
    assert any(found.values()) == ("float32" not in line)


def test_cards_of_a_configuration_have_tokens_per_second(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    write(tmp_path, LLAMA)
    found, alone = rates_of("config.json --seq-len 64", capsys)
    assert any(found.values()) and found == pytest.approx(alone, nan_ok=True)
