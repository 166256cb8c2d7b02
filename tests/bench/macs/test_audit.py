"""bench.macs --audit: every cell is explained by the calls that make it, and a wrong rule makes it fail."""

import json

import pytest

from headcount.bench.contractions import no_contraction
from headcount.bench.counters import registry
from headcount.bench.macs.__main__ import main
from headcount.bench.rules import ptflops_aten
from headcount.bench.spellings.catalog import SPELLINGS

B, T, S, D, H, BIASES = 2, 7, 11, 48, 6, 2 * (7 + 11 + 11 + 7) * 48
PROJECTIONS, ATTENTION = 2 * (7 + 11 + 11 + 7) * 48 * 48, 2 * 2 * 7 * 11 * 48
"""By hand: four projections with biases, and scores with values, of the audit's MHA."""


@pytest.fixture(scope="module")
def cells():
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["--audit", "--format", "json"]) == 0
    rows = json.loads(out.getvalue())["tables"][0]["rows"]
    return {(row["spelling"], row["device"], row["counter"]): row for row in rows}


def test_every_cell_is_explained_or_has_the_reason_why_there_is_none(cells, figure):
    devices = {device for _, device, _ in cells}
    assert {"cpu", "meta"} <= devices
    assert len(SPELLINGS) >= 15
    assert len(cells) == len(SPELLINGS) * len(devices) * (1 + len(registry.NAMES))
    differing = 0
    for row in cells.values():
        if row["counter"] == "right":
            assert row.get("failed") or row["macs"] == row["exact"]
        elif not row.get("failed"):
            assert row["explained"] and not row["unverified"]
            assert sum(cause["macs"] for cause in row["causes"]) == row["difference"] == row["macs"] - row["exact"]
            assert all(cause["place"] and cause["calls"] for cause in row["causes"])
            differing += bool(row["difference"])
    figure(f"audit: {len(cells)} cells, {differing} readings differ from the exact count, all explained")


@pytest.mark.parametrize(
    ("spelling", "device", "counter", "causes"),
    [
        ("mha-matmul", "cpu", "ptflops-pytorch", [("added", BIASES)]),
        ("mha-matmul", "meta", "ptflops-pytorch", [("added", BIASES), ("billed again", PROJECTIONS)]),
        ("mha-operator", "cpu", "ptflops-pytorch", [("added", BIASES), ("missed", -ATTENTION)]),
        ("mha-fused", "cpu", "torch", [("missed", -ATTENTION)]),
        ("mha-fused", "meta", "torch", []),
        ("mha-functional", "cpu", "ptflops-pytorch", [("missed", -PROJECTIONS)]),
        ("moa-function", "cpu", "fvcore", [("missed", -2 * B * T * 3 * D * 16)]),
        ("moa-grouped", "meta", "torch", [("missed", -2 * B * T * 3 * D * 16)]),
        ("vocabulary-tied", "cpu", "ptflops-pytorch", [("missed", -B * T * D * 29)]),
    ],
)
def test_known_causes(cells, spelling, device, counter, causes):
    found = cells[spelling, device, counter]["causes"]
    assert [(cause["what"], cause["macs"]) for cause in found] == causes


def test_a_cell_that_cannot_run_says_why(cells):
    assert "nonzero" in cells["moa-mask-loop", "meta", "torch"]["failed"]
    assert cells["mha-flex", "cpu", "fvcore"]["failed"].startswith("RuntimeError")


def test_a_wrong_rule_is_an_unexplained_cell_and_exit_code_1(capsys, monkeypatch):
    monkeypatch.setitem(ptflops_aten.TABLE, "baddbmm", (lambda event: {"product": 7}, "nowhere"))
    assert main(["--audit", "--device", "meta", "--counter", "ptflops-aten"]) == 1
    out, err = capsys.readouterr()
    assert "mha-baddbmm on meta: ptflops-aten reads" in err and "its rules predict" in err
    assert "audit: the calls that make each difference" in out


def test_an_operation_that_nobody_knows_makes_the_audit_fail(capsys, monkeypatch):
    monkeypatch.setattr(no_contraction, "KNOWN", no_contraction.KNOWN - {"topk"})
    assert main(["--audit", "--device", "meta", "--counter", "torch"]) == 1
    assert "moa-matmul on meta: failed: UncountedError: operations that may hold" in capsys.readouterr().err
