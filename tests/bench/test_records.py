"""Records are appended whole; a corrupt line is reported and the other lines are read."""

import json
from dataclasses import MISSING, fields

import pytest

from headcount.bench import records
from headcount.bench.errors import UsageError
from headcount.models.configs.layers import layer


def test_corrupt_lines_are_reported(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    records.append(path, {"i": 0, "name": "é"})
    with path.open("ab") as file:
        file.write(b'{"i": 1, "half\n[1, 2]\n{"schema_version": 99}\n\n' + b"[" * 20000 + b"\n" + b"9" * 5001)
        file.write(b'\n\xed\xa0\x80\n{"kind": [], "schema_version": 2}\n{"i": 7')
    # the line that a killed run left unfinished does not swallow the next
    records.append(path, {"i": 2}, {"i": 3})
    found, problems = records.read(path)
    assert [r.get("i") for r in found] == [0, None, 2, 3] and found[0]["name"] == "é"
    assert [p.split(": ")[0] for p in problems] == [f"{path}:{n}" for n in (2, 3, 4, 6, 7, 8, 10)]
    assert all(len(problem) < 320 + len(str(path)) and problem.isprintable() for problem in problems)


def example():
    """Return a shipped latency as JSON."""
    lines = [line for path in sorted(records.shipped().rglob("*.jsonl")) for line in path.read_text().splitlines()]
    return next(found for found in map(json.loads, lines) if found["kind"] == "latency")


RIGHT = {
    "text": "x",
    "texts": ["x"],
    "true or false": True,
    "number": 0.5,
    "object": {},
    "whole number": 7,
    "positive numbers": [0.5],
    "ratio": {"value": 1.0, "low": 0.5, "high": 2},
    "kernels": [{"name": "a", "us": 7.5}],
    "object with device and time": {"device": "a", "time": "b"},
}
"""A value of each type of a field."""
EQUAL = {"number": ("whole number",), "object": ("ratio", "object with device and time")}
"""Type of a field -> the types whose values it also takes."""
FIELDS = [
    ("pass" if one.name == "which" else one.name, records.FITS[records._type_of(one)][0], one.default)
    for one in fields(records.LatencyRecord)
]


@pytest.mark.parametrize("key, kind, default", FIELDS)
def test_wrong_field_is_reported(key, kind, default, tmp_path):
    path, whole = tmp_path / "r.jsonl", example()
    wrong = [value for name, value in RIGHT.items() if name not in (kind, *EQUAL.get(kind, ()))]
    wrong += [value for value in (-1, 2**70, [None], [-1.0]) if kind != "number" or isinstance(value, list)]
    wrong += [] if kind == "texts" else [[]]
    wrong += [None] if default is MISSING else []
    wrong += [{"device": "a", "time": 7}] if key == "environment" else []
    without = {name: value for name, value in whole.items() if name != key}
    right = [{**whole, key: RIGHT[kind]}, *([] if default is MISSING else [{**whole, key: None}, without])]
    lines = [*right, *({**whole, key: value} for value in wrong), *([without] if default is MISSING else []), whole]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found, problems = records.read(path)
    values = [RIGHT[kind], *([] if default is MISSING else [default, default]), whole.get(key)]
    assert [record.to_json()[key] for record in found[:-1]] == values[:-1] and len(found) == len(values)
    assert [problem.split(": ")[0] for problem in problems] == [
        f"{path}:{n}" for n in range(len(right) + 1, len(lines))
    ]
    assert all(key in problem for problem in problems)


@pytest.mark.parametrize("path", sorted(records.shipped().rglob("*.jsonl")), ids=lambda path: path.name)
def test_every_shipped_record_is_read(path):
    found, problems = records.read(path)
    assert problems == [] and len(found) == len(path.read_text().splitlines())


def test_other_files_are_not_appended_to(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import torch\n")
    with pytest.raises(UsageError, match="cannot append to .*model.py: it does not begin with a record"):
        records.append(path)
    assert path.read_text() == "import torch\n"


def test_installed_copy_stores_in_user_data_folder(monkeypatch, tmp_path):
    assert records.writable() == records.shipped()
    monkeypatch.setattr(records.headcount, "CHECKOUT", None)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, appauthor: tmp_path / name)
    assert records.writable() == tmp_path / "headcount" / "records"


def test_layer_times_report_corrupt_lines(tmp_path, capsys):
    one, several = (tmp_path / "a-device" / f"{name}.jsonl" for name in ("one", "several"))
    for path, lines in ((one, "[]\n"), (several, "[]\n[]\n")):
        records.append(path, {"i": 0})
        path.write_text(path.read_text() + lines)
    assert records.layer_times([tmp_path], "A device", layer("moa-8K8E128D"), 10, ("K",)) == {}
    out, err = capsys.readouterr()
    assert out == "" and [line.split(": ")[0] for line in err.splitlines()] == [f"{one}:2", f"{several}:2"]
