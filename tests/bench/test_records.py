"""Records are appended whole; a corrupt line is named and loses nothing else."""

import json

import pytest

from headcount.bench import records
from headcount.bench.errors import UsageError


def test_records_come_back_in_order_with_their_schema_version(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    for i in range(3):
        records.append(path, {"i": i, "name": "é"})
    found, problems = records.read(path)
    assert [r["i"] for r in found] == [0, 1, 2]
    assert all(r["schema_version"] == records.SCHEMA_VERSION for r in found)
    assert problems == []


def test_a_corrupt_line_names_file_and_line_and_loses_nothing_else(tmp_path):
    path = tmp_path / "r.jsonl"
    records.append(path, {"i": 0})
    with path.open("a") as file:
        file.write('{"i": 1, "half\n[1, 2]\n{"schema_version": 99}\n\n')
    records.append(path, {"i": 2})
    found, problems = records.read(path)
    assert [r["i"] for r in found] == [0, 2]
    assert [p.split(": ")[0] for p in problems] == [f"{path}:2", f"{path}:3", f"{path}:4"]


def test_a_line_that_a_killed_run_left_unfinished_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"i": 0')
    records.append(path, {"i": 1})
    found, problems = records.read(path)
    assert [r["i"] for r in found] == [1]
    assert len(problems) == 1


def test_a_file_that_cannot_be_used_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*none.jsonl: No such file"):
        records.read(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot write"):
        records.append(tmp_path, {"i": 0})


def test_numbers_that_json_does_not_have_are_refused(tmp_path):
    with pytest.raises(ValueError):
        records.append(tmp_path / "r.jsonl", {"x": float("nan")})
    assert not (tmp_path / "r.jsonl").exists()


def test_a_run_has_its_place_by_device_date_and_commit(tmp_path):
    path = records.place(tmp_path, "NVIDIA H200 (1x)", "2026-01-02", "0123456789abcdef")
    assert path == tmp_path / "nvidia-h200-1x" / "2026-01-02-0123456789.jsonl"
    assert records.place(tmp_path, "x", "d", None).name == "d-no-commit.jsonl"


def test_a_record_is_one_line_of_json(tmp_path):
    path = tmp_path / "r.jsonl"
    records.append(path, {"text": "a\nb"})
    assert json.loads(path.read_text()) == {"schema_version": 1, "text": "a\nb"}
