"""A TOML file in the folder of published tables is found, judged and printed."""

import io
import shutil
from importlib.resources import files

import pytest

from headcount.__main__ import main as headcount
from headcount.bench.counters import registry
from headcount.bench.counting import count
from headcount.bench.macs.published import ReproducedTable
from headcount.bench.render import emit
from headcount.formulas.published import tables

TOML = """
name = "made-up"
title = "two models"
paper = "somebody"
order = 3
source = "Nobody"
place = "Table 9"

[[figure]]
quantity = "macs"
rule = "exact"

[[figure]]
quantity = "params"

[[row]]
name = "base"
target = "transformer-base"
printed = { macs = "606M", params = "60.5M" }

[[row]]
name = "base, misprinted"
target = "transformer-base"
printed = { macs = "601M" }
"""


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the folder of published tables with one more file."""
    for file in files("headcount.formulas.published").iterdir():
        if file.name.endswith(".toml"):
            shutil.copy(file, tmp_path)
    (tmp_path / "made_up.toml").write_text(TOML)
    return tmp_path


def test_added_file_is_a_table(folder):
    known = tables.names()
    assert tables.names(folder=folder) == (*known[:2], "made-up", *known[2:])
    assert tables.names("somebody", folder) == ("made-up",)
    assert "made-up" not in known
    assert tables.load("made-up", folder).statement == (
        "Every multiply-accumulate of the forward pass once, rounded half up to the printed digits. "
        "All parameters, frozen ones included, rounded half up to the printed digits."
    )


def test_added_table_is_judged(folder):
    stream = io.StringIO()
    reproduced = ReproducedTable(tables.load("made-up", folder))
    rows = [reproduced.row(row, reproduced.measured(row, [])) for row in reproduced.cases]
    (printed,) = emit([reproduced.table([], rows)], "csv", stream)
    head, base, misprinted = (line.split(",") for line in stream.getvalue().splitlines()[:3])
    assert head[:4] == ["row", "params_printed_params", "params", "active_params"]
    assert base[:8] == ["base", "60.5M", "60522496", "60522496", "606M", "606085120", "606085120", "reproduced"]
    assert "no rule found" in misprinted
    (failure,) = (failure for row in printed.rows for failure in row.failures)
    assert failure.endswith("the verdict is 'no rule found', typed as 'reproduced'")


def test_failed_tool_is_in_its_row_and_exits_1(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(registry.counter("torch"), "read", fail)
    monkeypatch.setattr(count, "_COUNTS", {})
    words = ["--counter", "torch", "ptflops-aten"]
    for line in (["table", "jetmoe"], ["grid", "K=1 E=2 D=3 T=4"], ["compare", "moa-8K8E128D", "moa-8K16E256D"]):
        assert headcount([*line, *words]) == 1
        out, err = capsys.readouterr()
        assert "torch" in err and "no such luck" in err, line
        # the other tool counts; a comparison needs all of them
        assert line[0] == "compare" or "–" in out


@pytest.mark.parametrize(
    "old, new, error",
    [
        ('quantity = "macs"', 'quantity = "mass"', r"^unknown quantity 'mass'; did you mean macs\? choose from macs"),
        ('quantity = "macs"', 'quantity = "macs"\nflavour = 1', "^unknown key 'flavour'; choose from name, head, "),
        ('rule = "exact"', 'rule = "pal"', r"^unknown rule 'pal' of macs; did you mean palm\? choose from exact"),
        (
            "order = 3",
            'order = 3\nread = "rumour"',
            "^read of made-up must be one of pdf",
        ),
    ],
)
def test_invalid_table_raises(folder, old, new, error):
    (folder / "made_up.toml").write_text(TOML.replace(old, new, 1))
    tables._read_folder.cache_clear()
    with pytest.raises(ValueError, match=error):
        tables.load("made-up", folder)
