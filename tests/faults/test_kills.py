"""kill -9: files are whole, and a run that is begun again does what was not done, once."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from headcount.bench import records
from headcount.bench.latency.session import read_finished
from tests.faults.conftest import OLD, WRITING, choose

RUN = (
    "latency --layer mha-base moa-8K8E128D --arm reference --seq-len 3 5 --tokens 10 --blocks 2 --pass forward both "
    "--json r.jsonl"
)
CELLS, ROW = 8, "latency"


def cells_of(path):
    """The kinds and cells of a record file, in order; problems apart."""
    found, problems = records.read(path)
    return [(record["kind"], record["cell"], record.get("layer")) for record in found], problems


@pytest.mark.dear
@pytest.mark.fault(
    "kill -9 of a run with records, in other cells each time, and begun again",
    "only the cell in work is measured again: each row is there once, none is missing, and a last run adds nothing",
)
@choose("latency --json")
def test_a_killed_run_goes_on_where_it_was(command, place, tries):
    path, kills = place.folder / "r.jsonl", (1, 3, 5, 6, 8)
    for cell in kills:
        process = place.start(RUN)
        while process.poll() is None and _finished(path) < cell - 1:
            time.sleep(0.001)
        time.sleep(0.01 * cell)
        process.kill()
        process.communicate()
    assert place.run(RUN).returncode == 0
    found, problems = cells_of(path)
    rows = [(cell, arm) for kind, cell, arm in found if kind == ROW]
    assert len(rows) == len(set(rows)) and len({cell for cell, _ in rows}) == CELLS
    before = path.read_bytes()
    assert place.run(RUN).returncode == 0
    assert path.read_bytes() == before
    tries(len(kills))


def _finished(path):
    return len({cell for _, cell, _ in cells_of(path)[0]}) if path.exists() else 0


def cell(name, time, count=3):
    """The records of a cell as a run stores them."""
    lines = (path.read_text().splitlines()[0] for path in sorted(records.shipped().glob("*/*.jsonl")))
    whole = next(record for record in map(json.loads, lines) if record["kind"] == ROW)
    environment = {**whole["environment"], "time": time}
    own = {"cell": name, "arms_in_cell": count, "environment": environment}
    return [{**whole, **own, "arm": f"arm {i}", "implementation": "x"} for i in range(count)]


@pytest.mark.fault(
    "a record file that ends anywhere, as a kill leaves it",
    "every whole cell before that is kept, and the others are stored again, each arm once",
)
@choose("latency --json")
def test_a_file_that_ends_anywhere_is_gone_on_with(command, tmp_path, tries):
    path = tmp_path / "r.jsonl"
    names = ["one", "two", "three"]
    ends = []
    for name in names:
        records.append(path, *cell(name, "first"))
        ends.append(path.stat().st_size)
    data = path.read_bytes()
    cuts = [*range(0, len(data), 997), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])]
    for cut in cuts:
        path.write_bytes(data[:cut])
        done, _ = read_finished(path)
        # the last byte is a newline, without which the line is whole all the same
        assert sorted(done) == sorted(name for name, end in zip(names, ends, strict=True) if cut >= end - 1)
        for name in names:
            if name not in done:
                records.append(path, *cell(name, "again"))
        again, _ = read_finished(path)
        assert {name: [row["layer"] for row in rows] for name, rows in again.items()} == dict.fromkeys(
            names, ["arm 0", "arm 1", "arm 2"]
        )
        assert all(len({row["environment"]["time"] for row in rows}) == 1 for rows in again.values())
    tries(len(cuts))


APPENDS = """
import sys
from pathlib import Path
from headcount.bench import records
for i in range(60):
    records.append(Path("r.jsonl"), *({"by": sys.argv[1], "i": i, "j": j, "text": "x" * 30000} for j in range(3)))
"""


@pytest.mark.fault("two writers on one record file", "every line is whole, and those of one cell stand together")
@choose("latency --json")
def test_two_writers_keep_their_lines_apart(command, place, tries):
    argv = [sys.executable, "-c", APPENDS]
    options = {"cwd": place.folder, "env": place.environment()}
    writers = [subprocess.Popen([*argv, name], **options) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    found, problems = records.read(place.folder / "r.jsonl")
    assert problems == []
    groups = [found[i : i + 3] for i in range(0, len(found), 3)]
    assert all([(r["by"], r["i"], r["j"]) for r in g] == [(g[0]["by"], g[0]["i"], j) for j in range(3)] for g in groups)
    assert sorted((g[0]["by"], g[0]["i"]) for g in groups) == [(name, i) for name in "ab" for i in range(60)]
    tries(120)


@pytest.mark.dear
@pytest.mark.fault("the same run twice at once, with the same records", "both end well; a third adds nothing")
@choose("latency --json")
def test_two_runs_at_once_are_two_runs(command, place):
    both = [place.start(RUN) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len(read_finished(place.folder / "r.jsonl")[0]) == CELLS
    before = (place.folder / "r.jsonl").read_bytes()
    assert place.run(RUN).returncode == 0
    assert (place.folder / "r.jsonl").read_bytes() == before


WRITES = """
from pathlib import Path
from headcount.bench.output.files import open_output, write
while True:
    for letter in "ab":
        write("old", letter * 200000)
        with open_output("older") as stream:
            for _ in range(50):
                stream.write(letter * 4000)
"""


@pytest.mark.fault(
    "kill -9 while a file is written, over and over, by what every command writes files with",
    "the older file or the newer one, whole",
)
@choose("-o, --out, --save, --plot, --update, report")
def test_a_file_is_whole_whenever_its_writer_is_killed(command, place, tries):
    for name in ("old", "older"):
        (place.folder / name).write_text("a" * 200000)
    argv = [sys.executable, "-c", WRITES]
    for number in range(8):
        writer = subprocess.Popen(argv, cwd=place.folder, env=place.environment(), stderr=subprocess.PIPE)
        killer = threading.Timer(0.4 + 0.0137 * number, writer.kill)
        killer.start()
        _, err = writer.communicate()
        assert err == b""
        for name in ("old", "older"):
            text = (place.folder / name).read_text()
            assert len(text) == 200000 and len(set(text)) == 1
    tries(8)


WHOLE = [name for name in WRITING if not name.startswith("latency")]
"""Those that write a file at once; records are added to."""


@pytest.mark.fault(
    "kill -9 of a command that writes, at several moments of its run",
    "the older file or the newer one, whole, and no part of one under its name; run again it writes the newer",
)
@choose("macs -o", dear=[name for name in WHOLE if name != "macs -o"])
def test_a_killed_command_leaves_whole_files(command, place, tries):
    disk, parts = place.folder / "disk", (0.3, 0.6, 0.8, 0.9, 1.0)
    disk.mkdir()
    began = time.monotonic()
    assert place.run(WRITING[command]).returncode == 0
    took, whole = time.monotonic() - began, files_in(disk)
    for part in parts:
        for name in whole:
            (disk / name).write_text(OLD)
        process = place.start(WRITING[command])
        time.sleep(part * took)
        process.kill()
        process.communicate()
        found = files_in(disk)
        assert found.keys() == whole.keys()
        assert all(data in (OLD.encode(), whole[name]) for name, data in found.items())
    assert place.run(WRITING[command]).returncode == 0
    assert files_in(disk) == whole
    tries(len(parts))


def files_in(folder):
    """What the files of a folder hold, by name, but those that are being written."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".tmp")}


@pytest.mark.dear
@pytest.mark.fault("kill -9 of a command whose child counts somebody's code", "the child ends too")
@choose("macs --module model.py:hangs", "derive --module model.py:hangs --vars n", "lock --module model.py:hangs")
def test_a_child_ends_with_its_parent(command, place):
    from tests.faults.conftest import in_session

    process = place.start(command)
    until = time.monotonic() + 30
    while len(in_session(process.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(4)
    process.kill()
    process.communicate()
    until = time.monotonic() + 5
    while in_session(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    left = in_session(process.pid)
    for one in left:
        os.kill(one, 9)
    assert left == set()
