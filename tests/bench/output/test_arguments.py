"""Numbers on a command line, and progress on a terminal."""

import argparse
import io
import time
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module

import pytest

from headcount.__main__ import main
from headcount.bench.cli import Value
from headcount.bench.output import progress
from headcount.models.configs.numbers import LONGEST


@pytest.mark.parametrize(
    "text, value", [("7" * LONGEST, int("7" * LONGEST)), ("1e999", 10**999), ("1E-2", Fraction(1, 100))]
)
def test_long_numbers_are_parsed(text, value):
    assert Value("number", Fraction)(text) == value


@pytest.mark.parametrize("text", ["7" * (LONGEST + 1), "1e1000", "1E+0_999", "1e-9999", "1/0", "seven", ""])
def test_invalid_number_raises(text):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        Value("number of rows", Fraction)(text)
    assert str(error.value) == f"invalid number of rows value: {text!r}"


def test_progress_is_shown_and_erased(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    deadline = time.monotonic() + 20
    with progress.stage("counting"):
        while "\r\033[Kcounting, 0 s\r\033[Kcounting, 0 s" not in terminal.getvalue():
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.005)
    assert terminal.getvalue().endswith(" s\r\033[K")
    with progress.stage("counting"), progress.stage("model.py:make"):
        while "\033[Kcounting: model.py:make, 0 s" not in terminal.getvalue():
            assert time.monotonic() < deadline, terminal.getvalue()
            time.sleep(0.005)


@pytest.fixture
def stages(monkeypatch):
    """The stages that commands enter, in a terminal or not, and whether each is over."""
    entered = []

    @contextmanager
    def stage(what):
        entered.append([what, False])
        own = entered[-1]
        yield
        own[1] = True

    monkeypatch.setattr(progress, "stage", stage)
    return entered


@pytest.fixture
def folder(tmp_path):
    """A folder with a module, and with a table of two rows."""
    (tmp_path / "model.py").write_text("import torch\ndef make(n=7): return torch.nn.Identity(), torch.ones(n)\n")
    rows = ["target,quantity,printed", "model.py:make,params,1", '"model.py:make,n=11",params,1']
    (tmp_path / "mine.csv").write_text("\n".join(rows))
    return tmp_path


@pytest.mark.parametrize("command, names", [
    ("table {}/mine.csv", ["model.py:make", "model.py:make,n=11"]),
    ("count {0}/model.py:make llama2-7b,T=3", ["{}/model.py:make", "llama2-7b,T=3"]),
    ("count {}/model.py:make --vary n=7,11", ["{}/model.py:make,n=7", "{}/model.py:make,n=11"]),
    ("table moh-llama3 --counter closed-form", ["LLaMA3-8B", "MoH-LLaMA3-8B"]),
    ("grid moa:K=2,3,E=8,D=4,T=5", ["K=2 E=8 D=4 T=5", "K=3 E=8 D=4 T=5"]),
])  # fmt: skip
def test_progress_names_each_row(command, names, stages, folder):
    assert main(command.format(folder).split()) == 0
    for number, name in enumerate(names, 1):
        end = f"row {number} of {len(names)}: {name.format(folder)}"
        assert any(what.endswith(end) for what, _ in stages), stages


@pytest.mark.parametrize("module, words", [
    ("macs.own_models", "table {}/mine.csv"), ("macs.survey", "count {}/model.py:make --vary n=7,11"),
    ("macs.grid", "grid moa:K=2,3,E=8,D=4,T=5"),
])  # fmt: skip
def test_row_is_counted_while_it_is_named(module, words, stages, folder, monkeypatch):
    module, rows = import_module(f"headcount.bench.{module}"), []
    count = module.count

    def spy(*args, **options):
        rows.append([what for what, is_over in stages if not is_over][-1])
        return count(*args, **options)

    monkeypatch.setattr(module, "count", spy)
    assert main(words.format(folder).split()) == 0
    assert [row.partition(":")[0] for row in rows] == ["row 1 of 2", "row 2 of 2"]


def test_no_progress_without_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    with progress.stage("counting"):
        time.sleep(0.05)
    assert stream.getvalue() == ""
