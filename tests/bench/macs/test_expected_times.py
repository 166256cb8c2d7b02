"""``--on CARD`` adds expected times to tables of layers and of several models: those that ``fit`` prints of each."""

import json

import pytest

from headcount.__main__ import main

CARD = ["--on", "h100-sxm"]
PASSES = {"prefill": "prefill_ms", "decode step": "decode_ms", "forward pass": "forward_ms"}


def rows(capsys, *argv, at=0):
    code = main([*argv, "--format", "json"])
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    return json.loads(out)["tables"][at]["rows"]


def by_fit(capsys, target):
    """Return the expected time of each pass by the column that has it."""
    return {PASSES[row["what"]]: row["expected_ms"] for row in rows(capsys, "fit", target, *CARD, at=1)}


@pytest.mark.parametrize("kind, sizes", [
    ("moa", "K=1,4 E=8 D=64 T=128"), ("moh", "h=4 s=1 r=2 T=64"), ("mha", "h=4 d_h=32 T=64,128"),
    ("mla", "h=2 d_c=64 d_h=32 T=64"),
])  # fmt: skip
def test_grid_has_the_time_of_each_layer(kind, sizes, capsys):
    found = rows(capsys, "grid", f"{kind}:{sizes.replace(' ', ',')}", "--counter", "closed-form", *CARD)
    assert found
    for row in found:
        letters = ",".join(f"{letter}={size}" for letter, size in row["point"].items())
        bias = "" if kind == "mla" else ",bias=false"
        assert row["accounts"]["forward_ms"] == by_fit(capsys, f"{kind}:{letters},d_m=512{bias}")["forward_ms"]


def test_several_targets_have_their_times(capsys):
    targets = ["moa:K=2,E=8,D=64,d_m=64", "llama3-8b,num_layers=2"]
    found = rows(capsys, "count", *targets, "--vary", "T=64,128", *CARD, "--columns", "macs", "decode_ms")
    assert len({row["decode_ms"] for row in found}) == 4
    for row in found:
        assert row["decode_ms"] == by_fit(capsys, f"{row['target']},T={row['at']['T']}")["decode_ms"]
    # without a column of times there is that of a forward pass
    for row in rows(capsys, "count", *targets, "--vary", "T=64", *CARD):
        assert {"macs", "params", "forward_ms"} <= row.keys() and row["forward_ms"] > 0


@pytest.mark.parametrize(("line", "named"), [
    ("grid mha:h=4,T=8 --columns forward_ms --counter closed-form", "needs --on"),
    ("grid mha:h=4,T=8 --counter closed-form --on h1000", "unknown card"),
    ("count llama3-8b --vary T=8 --columns training_ms", "needs --on"),
    ("compare llama3-8b mistral-7b --on h100-sxm --counter closed-form", "--columns"),
])  # fmt: skip
def test_times_name_what_they_need(line, named, capsys):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and named in err and err.count("\n") == 1


def test_module_has_a_reason(tmp_path, capsys):
    (tmp_path / "m.py").write_text("from torch import nn, ones\ndef make(): return nn.Linear(7, 5), (ones(3, 7),)\n")
    module, preset = rows(capsys, "count", f"{tmp_path}/m.py:make", "dit-s2", *CARD)
    assert module["macs"] == 105 and module["forward_ms"] is None and preset["forward_ms"] > 0
    assert "headcount count TARGET --on CARD" in module["missing"]["forward_ms"]
