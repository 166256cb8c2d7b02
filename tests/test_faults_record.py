"""python -m tests.faults: what is stored of a run, whole or in part."""

import json

import pytest

from tests.faults import __main__ as faults

KILL, DISK = ("kill -9", "whole"), ("full disk", "one line")


def tried(*keys, in_part=(), held=1):
    """A run that tried these faults."""
    out = faults.Tried()
    out.order, out.in_part = [KILL, DISK], set(in_part)
    for fault, then in keys:
        out.faults[fault, then] = {"fault": fault, "then": then, "tries": 1, "held": held}
    return out


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "RECORD", tmp_path / "faults.json")
    return lambda: json.loads(faults.RECORD.read_text())


def test_a_whole_run_is_what_is_stored(stored):
    faults.store(tried(KILL, DISK, held=0), 90)
    faults.store(tried(KILL, DISK), 60)
    assert [(one["fault"], one["held"]) for one in stored()["faults"]] == [("kill -9", 1), ("full disk", 1)]
    assert stored()["seconds"] == 60 and all(one["commit"] for one in stored()["faults"])


def test_a_fault_that_is_tried_again_takes_its_own_place(stored):
    faults.store(tried(KILL, DISK, held=0), 90)
    faults.store(tried(DISK), 20)
    assert [(one["fault"], one["held"]) for one in stored()["faults"]] == [("kill -9", 0), ("full disk", 1)]
    assert stored()["seconds"] == 110


def test_a_fault_of_which_a_test_was_not_chosen_is_not_stored(stored):
    faults.store(tried(DISK, in_part=[DISK]), 20)
    assert not faults.RECORD.exists()
    faults.store(tried(KILL, DISK), 90)
    before = stored()
    faults.store(tried(DISK, in_part=[DISK], held=0), 20)
    assert stored() == before
