"""Records are appended whole; a corrupt line is named and loses nothing else."""

import json
import signal
import sys
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


WRONG = (None, True, -1, 2**70, 0.5, "x", [], {}, [None], [-1.0], float("inf"), float("nan"))


@pytest.mark.parametrize("field", records.FIELDS["latency"])
def test_a_record_with_a_field_missing_or_of_another_type_is_named_and_the_others_are_kept(field, tmp_path):
    path, whole = tmp_path / "r.jsonl", shipped()
    without = {name: value for name, value in whole.items() if name != field}
    wrong = [value for value in WRONG if not records._IS[records.FIELDS["latency"][field]](value)]
    wrong = [value for value in wrong if not (value is None and field in records.OPTIONAL)]
    assert len(wrong) >= 8
    lines = [whole, *({**whole, field: value} for value in wrong), *[without] * (field not in records.ABSENT), whole]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found, problems = records.read(path)
    assert found == [whole, whole]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path}:{n}" for n in range(2, len(lines))]
    assert all(field in problem or "is no number of JSON" in problem for problem in problems)


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


@pytest.mark.parametrize(
    "platform, variable, otherwise",
    [
        ("linux", "XDG_DATA_HOME", ".local/share"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
        ("darwin", None, "Library/Application Support"),
    ],
)
def test_an_installed_copy_stores_in_the_users_own_data_folder(platform, variable, otherwise, monkeypatch, tmp_path):
    monkeypatch.setattr(records.headcount, "CHECKOUT", None)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / name))
    if variable:
        assert records.writable() == tmp_path / variable / "headcount" / "records"
        monkeypatch.setenv(variable, "")
    assert records.writable() == tmp_path / otherwise / "headcount" / "records"


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
