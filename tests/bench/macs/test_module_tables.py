"""What headcount macs --module says of a module in its tables and in its last line."""

import pytest

from headcount.bench.macs.__main__ import main

pytestmark = pytest.mark.usefixtures("warm")

MODEL = """
import torch

def linear(): return torch.nn.Linear(13, 11), (torch.ones(7, 13),)

class Tried(torch.nn.Module):
    def forward(self, a, b):
        try:
            return torch.mm(a, b.mT)
        except RuntimeError:
            return torch.mm(a, b)

def tried(): return Tried(), (torch.ones(7, 13), torch.ones(13, 11))
"""
COST = 7 * 13 * 11


@pytest.fixture
def lines(tmp_path, monkeypatch, capfd):
    """The words of the lines that a function's module prints, by the first: the uppermost of two with the same."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def printed(function, *counters):
        assert main(["--module", f"model.py:{function}", "--counter", *counters, "--wide"]) == 0
        return {line.split()[0]: line.split()[1:] for line in reversed(capfd.readouterr().out.splitlines()) if line}

    return printed


def test_the_last_line_but_one_is_the_sum_and_the_last_says_it(lines):
    found = lines("linear", "ptflops-aten", "torch")
    assert found["total"] == [f"{COST:,}", "100.00", f"{11 * 13 + 11}"]
    assert found["ptflops-aten"][:4] == [f"{COST + 7 * 11:,}", "+77", "explained"]
    assert found["torch"] == [f"{COST:,}", "0", "right"]
    said = "MACs (dispatched contractions), 154 parameters; 2 of 2 readings explained by their calls."
    assert found["1,001"] == said.split()


def test_a_counter_that_failed_is_called_so_and_is_not_explained(lines):
    found = lines("tried", "fvcore", "torch")
    assert found["fvcore"] == ["–", "–", "failed", "[1]"]
    assert " ".join(found["[1]"]) == "failed: it ended its process, with exit code -11"
    assert " ".join(found["1,001"]).endswith("1 of 2 readings explained by their calls.")
