"""The ways that a campaign tries: once, where there is time, and again where what is stored is none."""

import json
from types import SimpleNamespace

import pytest
import torch

from headcount.bench.latency import campaign, tuning

ROW = {"what": "a core", "way": "flash", "us": 7.0, "chosen": None, "status": "timed"}
KEPT = [ROW | {"us": 5.0}]


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """The rows that are shown, what was asked of the device, and what is stored afterwards."""
    path = tmp_path / "choices.json"

    def show(stored, in_time):
        asked = []
        monkeypatch.setattr(tuning, "choices", lambda *of: asked.append(of) or iter([ROW]))
        if stored is not None:
            path.write_text(stored)
        found = list(campaign._choices(SimpleNamespace(tokens=77, dtype="float16"), tmp_path, in_time))
        assert all(row.values == record and row.notes == [] for row in found for record in row.records)
        return [row.values for row in found], asked, path.exists() and path.read_text()

    return show


def test_ways_are_tried_once(shown):
    found, asked, stored = shown(None, True)
    assert (found, asked, json.loads(stored)) == ([ROW], [(77, torch.float16)], [ROW])
    for in_time in (True, False):
        assert shown(json.dumps(KEPT), in_time) == (KEPT, [], json.dumps(KEPT))


def test_without_time_nothing_is_tried_or_stored(shown):
    assert shown(None, False) == ([], [], False)


@pytest.mark.parametrize("stored", ["{", '{"what": 7}', "[7]", "[" * 10**5], ids=["cut", "object", "number", "deep"])
def test_what_holds_no_ways_is_said_to_and_they_are_tried_again(stored, shown, tmp_path, capsys):
    found, asked, after = shown(stored, True)
    assert (found, len(asked), json.loads(after)) == ([ROW], 1, [ROW])
    assert capsys.readouterr().err == f"{tmp_path / 'choices.json'} holds no choices: they are tried again\n"


def test_no_ways_at_all_are_kept(shown):
    assert shown("[]", True) == ([], [], "[]")


def test_what_is_missing_is_written_down_and_said_with_its_reason(tmp_path):
    cells = [SimpleNamespace(key=key) for key in ("one", "two", "three", "four")]
    store = SimpleNamespace(done={"one": [], "three": []})
    session = SimpleNamespace(store=store, missing=[(cells[3], "no time left")])
    said = campaign._missing(session, cells, tmp_path / "out")
    assert said == "\nmissing: two: not begun\nmissing: four: no time left\n2 cells are missing"
    assert (tmp_path / "out" / "missing.txt").read_text() == "two: not begun\nfour: no time left\n"
    assert campaign._missing(session, cells[:1], tmp_path / "out") == "; nothing is missing"
    assert (tmp_path / "out" / "missing.txt").read_text() == ""
