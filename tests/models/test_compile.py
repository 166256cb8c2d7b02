"""torch.compile traces the implementations that declare one graph, with the same outputs and gradients."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases, configurations

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def trace_results():
    command = [sys.executable, "-m", "tests.models.traced"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, impl", [pytest.param(c.id, c.values[1], id=c.id) for c in cases("form", "router")])
def test_implementation_is_one_graph_if_declared(name, impl, trace_results):
    assert trace_results["implementations"][name] == ("same" if impl.one_graph else "sizes are values")


@pytest.mark.parametrize("name, config", list(configurations("form")))
def test_auto_is_one_graph_if_its_choice_is(name, config, trace_results):
    outcome, used = trace_results["implementations"][f"{name}-auto"]
    assert outcome == (
        "same" if next(impl.one_graph for impl in config.implementations if impl.name == used) else "sizes are values"
    )


def test_decoding_step_is_one_graph(trace_results):
    assert trace_results["decoded"] < 1e-12
