"""Records are appended whole; a corrupt line is named and loses nothing else."""

import json
import signal
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from headcount.bench import records
from headcount.bench.errors import UsageError
from headcount.models.configs.layers import layer


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


def test_records_are_added_all_or_none(tmp_path):
    """The third line is beyond what a file may hold here: nothing of the other two stays."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "r.jsonl"
    records.append(path, {"i": 0})
    before = path.read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
        with pytest.raises(UsageError, match=f"^cannot write {path}: File too large$"):
            records.append(path, *({"i": i, "text": "x" * 150} for i in range(3)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    records.append(path, {"i": 1}, {"i": 2})
    assert [record["i"] for record in records.read(path)[0]] == [0, 1, 2]


def shipped():
    """A record that came with this software, as JSON has it."""
    lines = [line for path in sorted(records.shipped().rglob("*.jsonl")) for line in path.read_text().splitlines()]
    return next(found for found in map(json.loads, lines) if found["kind"] == "latency")


RIGHT = {"str": "x", "bool": True, "float": 0.5, "dict": {}, "Count": 7, "Samples": [0.5]}
RIGHT |= {"Interval": {"value": 1.0, "low": 0.5, "high": 2}}
"""A value of each type of a field."""
EQUAL = {"float": ("Count", "float"), "dict": ("dict", "Interval")}
"""Type of a field -> the types whose values it takes, beside its own."""


@pytest.mark.parametrize("field", fields(records.LatencyRecord), ids=lambda field: field.name)
def test_missing_or_mistyped_field_is_reported_and_other_lines_kept(field, tmp_path):
    path, whole = tmp_path / "r.jsonl", shipped()
    whole["layer"] = whole.pop("arm")
    key, optional = {"which": "pass"}.get(field.name, field.name), "None" in str(field.type)
    kind = getattr(field.type, "__name__", str(field.type)).partition(" ")[0].rpartition(".")[2]
    right = RIGHT[kind] if key != "environment" else whole[key]
    fits = (kind, *EQUAL.get(kind, ()))
    wrong = [value for name, value in RIGHT.items() if name not in fits] + [-1, 2**70, [], [None], [-1.0]]
    wrong = [value for value in wrong if kind != "float" or isinstance(value, list | str | bool)]
    wrong += [] if optional else [None]
    without = {name: value for name, value in whole.items() if name != key}
    needed = field.default is MISSING
    lines = [{**whole, key: right}, *({**whole, key: value} for value in wrong), *[without] * needed, whole]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found, problems = records.read(path)
    assert found == [lines[0], whole]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path}:{n}" for n in range(2, len(lines))]
    assert all(key in problem for problem in problems)


def test_not_a_number_is_reported(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"schema_version": 1, "x": NaN}')
    assert "is no number of JSON" in records.read(tmp_path / "r.jsonl")[1][0]


def test_old_keys_are_read_as_new_ones(tmp_path):
    old = shipped()
    (tmp_path / "r.jsonl").write_text(json.dumps(old))
    (found,), problems = records.read(tmp_path / "r.jsonl")
    assert found["layer"] == old["arm"] and "arm" not in found and problems == []


@pytest.mark.parametrize("path", sorted(records.shipped().rglob("*.jsonl")), ids=lambda path: path.name)
def test_every_shipped_record_is_read(path):
    found, problems = records.read(path)
    assert problems == [] and len(found) == len(path.read_text().splitlines())


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("name", 7, "name is 7, no text"),
        # a terminal of any locale prints it, in a line
        ("name", ["é", "\n"], r"name is ['?', '\n'], no text"),
        ("name", [7] * 99, f"name is [{'7, ' * 26}7, no text"),
        ("environment", [], "environment is [], no object"),
        ("environment", {}, "environment without device"),
        ("environment", {"device": "a", "time": 7}, "environment without time"),
        ("smoke", 1, "smoke is 1, no true or false"),
    ],
)
def test_what_a_field_should_be_is_said(field, value, said, tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps(shipped() | {field: value}))
    assert records.read(tmp_path / "r.jsonl") == ([], [f"{tmp_path / 'r.jsonl'}:1: {said}"])


def test_lines_that_no_parser_survives_are_no_records(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"[" * 20000 + b"\n" + b"9" * 5001 + b"\n\xed\xa0\x80\n" + b'{"kind": [], "schema_version": 1}\n')
    found, problems = records.read(path)
    assert [record["kind"] for record in found] == [[]]
    assert all(len(problem) < 120 + len(str(path)) and problem.isprintable() for problem in problems)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no device without an end")
def test_a_device_without_an_end_is_not_read():
    with pytest.raises(UsageError, match="^cannot read /dev/zero: it is no file$"):
        records.read(Path("/dev/zero"))


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


def test_installed_copy_stores_in_user_data_folder(monkeypatch, tmp_path):
    assert records.writable() == records.shipped()
    monkeypatch.setattr(records.headcount, "CHECKOUT", None)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, appauthor: tmp_path / name)
    assert records.writable() == tmp_path / "headcount" / "records"


def test_a_record_is_one_line_of_json(tmp_path):
    path = tmp_path / "r.jsonl"
    records.append(path, {"text": "a\nb"})
    assert json.loads(path.read_text()) == {"schema_version": 1, "text": "a\nb"}


def test_folders_of_a_record_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.jsonl"
    for number in range(2):
        records.append(path, {"i": number})
    assert [json.loads(line)["i"] for line in path.read_text().splitlines()] == [0, 1]


def test_times_are_read_past_lines_that_are_no_records_which_are_named(tmp_path, capsys):
    one, several = (tmp_path / "a-device" / f"{name}.jsonl" for name in ("one", "several"))
    for path, lines in ((one, "[]\n"), (several, "[]\n[]\n")):
        records.append(path, {"i": 0})
        path.write_text(path.read_text() + lines)
    assert records.layer_times([tmp_path], "A device", layer("moa-8K8E128D"), 10, ("K",)) == {}
    assert capsys.readouterr() == (
        "",
        f"{one}:2: not a record of schema version 1\n"
        f"{several}:2: not a record of schema version 1, and 1 more lines that are none\n",
    )


@pytest.mark.parametrize("samples, middle", [([7.0], 7), ([5.0, 1.0, 3.0], 3), ([9.0, 1.0, 4.0, 2.0], 3)])
def test_a_time_is_the_middle_one_or_the_mean_of_the_two_there(samples, middle):
    assert records._median(samples) == middle
