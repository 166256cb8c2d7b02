"""Where headcount macs counts: on the device that is asked for, by the counters that are asked for, once."""

import json
from contextlib import contextmanager

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.macs import published
from headcount.bench.macs.__main__ import main

ONE = ["--preset", "mlm-transformer", "--seq-len", "5", "--counter", "ptflops-aten"]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_preset_is_counted_where_it_is_told_to_be_and_its_calls_are_told(device, capsys):
    assert main([*ONE, "--device", device, "--format", "json"]) == 0
    closed, record = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert (closed["device"], record["device"]) == (None, device) and record["causes"]


@pytest.mark.parametrize("asked, device", [([], None), (["--device", "meta"], "meta")])
def test_rows_of_tables_are_counted_together_where_they_are_told_to_be(asked, device, monkeypatch, capsys):
    seen = []

    @contextmanager
    def without(cases, counters, where):
        seen.append(([case.preset for case in cases], counters, where))
        raise UsageError("it is known")
        yield

    monkeypatch.setattr(published, "counting", without)
    assert main(["--table", "moh-table-h", "jetmoe", "--counter", "torch", *asked]) == 2
    assert capsys.readouterr() == ("", "python -m bench.macs: error: it is known\n")
    ((presets, counters, where),) = seen
    assert (len(presets), presets[-1], counters, where) == (3, "jetmoe-8b", ["torch"], device)
