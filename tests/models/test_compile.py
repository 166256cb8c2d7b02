"""Which arms torch.compile traces into one graph: those that say so, with the same numbers and gradients."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases, configurations


@pytest.fixture(scope="module")
def traced():
    command = [sys.executable, "-m", "tests.models.traced"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, arm", [pytest.param(c.id, c.values[1], id=c.id) for c in cases("form", "router")])
def test_an_arm_is_one_graph_where_it_says_so(name, arm, traced):
    assert traced["implementations"][name] == ("same" if arm.one_graph else "sizes are values")


@pytest.mark.parametrize("name, config", list(configurations("form")))
def test_auto_is_one_graph_where_its_choice_is(name, config, traced):
    outcome, used = traced["implementations"][f"{name}-auto"]
    assert outcome == (
        "same" if next(arm.one_graph for arm in config.implementations if arm.name == used) else "sizes are values"
    )


def test_a_step_of_decoding_is_one_graph(traced):
    assert traced["decoded"] < 1e-12
