"""Active parameters that are not known are a dash or a line that says so, never all parameters."""

import inspect
import json
import runpy

import pytest

import headcount as hc
from headcount.__main__ import main
from headcount.bench.macs import cases, compare
from tests.bench.mixture import Mixture

MODEL = f"""
import torch
from torch import nn

{inspect.getsource(Mixture)}
def mixture():
    return Mixture(3, 5), (torch.ones(1, 7, 5),)

def stating(number=5 * 3 + 5 * 5):
    model = Mixture(3, 5)
    model.active_params = number
    return model, (torch.ones(1, 7, 5),)

def dense():
    return nn.Linear(5, 3), (torch.ones(1, 7, 5),)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


def test_compare_leaves_out_unknown_active_parameters(model):
    unknown, known = (cases.parse(f"{model}:{name}") for name in ("mixture", "dense"))
    preset = cases.parse("moa-8K8E128D")
    for side, active in ((unknown, None), (known, 5 * 3 + 3)):
        found = {table.name: table for table in compare.tables(side, preset, (), None)}
        total = found["compare-params"].rows[-1].amounts
        assert (total["params"].a, total["active_params"].a) == (side.ledger.params, active)
        expected = None if active is None else active - preset.ledger.active_params
        assert total["active_params"].difference == expected


@pytest.mark.parametrize(
    "quantity, printed, code",
    [("active_params", 90, 2), ("active_params", 40, 2), ("params", 90, 0), ("params", 91, 0)],
)
def test_table_does_not_judge_unknown_active_parameters(model, capsys, quantity, printed, code):
    path = model.with_name("mine.csv")
    path.write_text(f"target,quantity,printed\nnet.py:mixture,{quantity},{printed}\n")
    assert main(["table", str(path)]) == code
    error = capsys.readouterr().err
    assert ("line 2: the active parameters of net.py:mixture are not known" in error) == (code == 2)


@pytest.mark.parametrize("active, verdict", [(40, "reproduced"), (41, "no rule found")])
def test_table_judges_active_parameters_that_the_module_states(model, capsys, active, verdict):
    path = model.with_name("mine.csv")
    path.write_text(f"target,quantity,printed\nnet.py:stating,active_params,{active}\n")
    assert main(["table", str(path)]) == 0 and verdict in capsys.readouterr().out


def test_stated_active_parameters_are_in_every_count(model, monkeypatch, capsys):
    monkeypatch.chdir(model.parent)
    assert main(["count", "net.py:stating"]) == 0
    out = capsys.readouterr().out
    assert "Active params: 40\n" in out and "as the module states them: active_params of Mixture." in out
    module, inputs = runpy.run_path(str(model))["stating"]()
    assert (found := hc.count(module, *inputs)).active_params == 40
    assert type(found).from_json(json.loads(json.dumps(found.to_json()))).active_params == 40
    # 7 tokens, 6 FLOPs for each parameter that a token uses
    assert hc.MFU(module, *inputs, peak="1T", rule="6n", sample_tokens=7).flops_per_token == 6 * 40


@pytest.mark.parametrize("number", [0, -1, 91, 4.0, True, "40"])
def test_impossible_statement_is_one_line(model, capsys, number):
    assert main(["count", f"{model}:stating,number={json.dumps(number)}"]) == 2
    assert f"must be a whole number of 1 to 90, not {number!r}\n" in capsys.readouterr().err


def test_known_active_parameters_need_no_statement(model):
    module, inputs = runpy.run_path(str(model))["dense"]()
    module.active_params = 1
    assert hc.count(module, *inputs).active_params == 5 * 3 + 3
