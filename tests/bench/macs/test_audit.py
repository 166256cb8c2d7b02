"""Audit: calls explain the difference of every count, and a wrong rule fails."""

import json
from dataclasses import replace

import pytest

from headcount.bench.commands.audit import main
from headcount.bench.contractions import zero_mac_ops
from headcount.bench.counters import ptflops_aten, registry
from headcount.bench.formulations.catalog import FORMULATIONS
from headcount.bench.macs import audit
from headcount.formulas.ledger import Entry, Ledger

B, T, S, D, H, BIASES = 2, 7, 11, 48, 6, 2 * (7 + 11 + 11 + 7) * 48
PROJECTIONS, ATTENTION = 2 * (7 + 11 + 11 + 7) * 48 * 48, 2 * 2 * 7 * 11 * 48
"""By hand: four projections with biases, and scores with values, of the audit's MHA."""


FAILING = {
    **{(f"{layer}-flex", "meta", None): "ValueError: FlexAttention" for layer in ("mha", "moa")},
    ("moa-mask-loop", "meta", None): "NotImplementedError: The register_meta function",
    **{
        (f"{layer}-flex", "cpu", counter): reason
        for layer in ("mha", "moa")
        for counter, reason in {
            "ptflops-aten": "NotImplementedError: There was no rule registered for Higher",
            "fvcore": "RuntimeError: Unsupported value kind: Tensor",
            "torch": "TypeError: no implementation found for",
        }.items()
    },
    ("mha-conv", "meta", "fvcore"): "TypeError: cond must be a bool",
}
"""Error by formulation, device and counter that has no count; None where no counter runs the formulation."""


@pytest.fixture(scope="module")
def cells():
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["--format", "json"]) == 0
    found = {}
    for row in json.loads(out.getvalue())["tables"][0]["rows"]:
        same = {"exact": row["exact"], "failed": row["failed"]}
        counts = {}
        for tool in row["counts"]:
            counts[tool["counter"]] = {"exact": tool["exact"], "failed": tool["reason"]}
            counts[tool["counter"]] |= {
                "macs": tool["result"] and tool["result"]["macs"],
                **(tool["explanation"] or {}),
            }
        counts["headcount"] = same | {"macs": row["headcount_macs"]}
        for counter in ("headcount", *registry.tools()):
            found[row["spelling"], row["device"], counter] = counts.get(counter, same)
    return found


def test_every_cell_is_exact_or_explained(cells, figure):
    devices = {device for _, device, _ in cells}
    assert {"cpu", "meta"} <= devices
    assert len(FORMULATIONS) >= 15
    assert len(cells) == len(FORMULATIONS) * len(devices) * (1 + len(registry.tools()))
    differing = 0
    for (spelling, device, counter), row in cells.items():
        why = FAILING.get((spelling, device, None)) or FAILING.get((spelling, device, counter))
        if device != "cuda" and why:
            assert why in row["failed"]
            continue
        if counter == "headcount":
            assert row["macs"] == row["exact"]
            continue
        if device == "cuda" and row["failed"]:
            continue
        assert row["macs"] is not None and not row["failed"]
        assert row["predicted_macs"] == row["macs"] and not row["unverified"]
        assert sum(cause["macs"] for cause in row["causes"]) == row["macs"] - row["exact"]
        assert all(cause["place"] and cause["calls"] for cause in row["causes"])
        differing += row["macs"] != row["exact"]
    figure(f"audit: {len(cells)} cells, {differing} counts differ from the exact count, all explained")


@pytest.mark.parametrize(
    ("spelling", "device", "counter", "causes"),
    [
        ("mha-matmul", "cpu", "ptflops-pytorch", [("added", BIASES)]),
        ("mha-matmul", "meta", "ptflops-pytorch", [("added", BIASES), ("counted twice", PROJECTIONS)]),
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


@pytest.fixture
def few_formulations(monkeypatch):
    """Audit two formulations only."""
    monkeypatch.setattr(
        audit, "FORMULATIONS", [one for one in FORMULATIONS if one.name in ("mha-baddbmm", "moa-matmul")]
    )


def test_wrong_rule_exits_1(few_formulations, capsys, monkeypatch):
    monkeypatch.setitem(ptflops_aten.TABLE, "baddbmm", (lambda event: {"product": 7}, "nowhere"))
    assert main(["--device", "meta", "--counter", "ptflops-aten"]) == 1
    out, err = capsys.readouterr()
    assert "mha-baddbmm on meta: ptflops-aten reads" in err and "its rules predict" in err
    assert "audit: where each tool's error comes from" in out


def test_unsupported_operator_fails_audit(few_formulations, capsys, monkeypatch):
    monkeypatch.setattr(zero_mac_ops, "KNOWN", zero_mac_ops.KNOWN - {"topk"})
    assert main(["--device", "meta", "--counter", "torch"]) == 1
    assert "moa-matmul on meta: failed: UnsupportedError: unsupported operations, which" in capsys.readouterr().err


def test_audit_compares_with_closed_form(monkeypatch):
    (spelling,) = (s for s in FORMULATIONS if s.name == "mha-matmul")
    more = Ledger((*spelling.exact, Entry("", "linear", {"m": 7})))
    monkeypatch.setattr(audit, "FORMULATIONS", [replace(spelling, exact=more)])
    (row,) = audit.count_formulations(["torch"], "meta")
    assert (row.headcount, row.error_of("torch")) == (-7, -7)
    assert row.failures[0].startswith(f"mha-matmul on meta: headcount counts {PROJECTIONS + ATTENTION:,}, exact")
