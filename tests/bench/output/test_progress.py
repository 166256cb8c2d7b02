"""What is being done is said on a terminal, wiped away when it is over, and left to commands that say it themselves."""

import io
import time
from importlib import import_module
from types import SimpleNamespace

import pytest

from headcount.bench.output import progress
from headcount.bench.render import emit
from headcount.bench.table import Column, Row, Section, Table


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal for stderr, on which nobody has any patience."""
    found = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    return found


def until(said, terminal):
    """Wait for the terminal to show it."""
    deadline = time.monotonic() + 20
    while said not in terminal.getvalue():
        assert time.monotonic() < deadline, terminal.getvalue()
        time.sleep(0.005)


def test_what_takes_long_is_said_and_wiped_away(terminal):
    with progress.said("counting"):
        until("\r\033[Kcounting, 0 s\r\033[Kcounting, 0 s", terminal)
    assert terminal.getvalue().endswith(" s\r\033[K")
    with progress.left_alone(), progress.said("nothing"):
        time.sleep(0.05)
    assert "nothing" not in terminal.getvalue()


def test_what_takes_a_moment_is_not_said(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    with progress.said("counting"):
        pass
    assert terminal.getvalue() == ""


def test_a_file_is_told_nothing(terminal, monkeypatch):
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with progress.said("counting"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_the_row_that_is_made_is_numbered(terminal):
    def made():
        for number in (1, 2):
            until(f"moa-table3, row {number}, 0 s", terminal)
            yield number

    assert list(progress.watched(made(), "moa-table3", "row")) == [1, 2]


def test_a_row_is_said_to_be_of_its_table(terminal):
    row = Row({"macs": 7})

    def rows():
        until("costs, row 1, 0 s", terminal)
        yield row

    section = Section(Table("costs", "what it costs", [Column("macs", "MACs")]), rows())
    assert [kept.rows for kept in emit([section], "csv", io.StringIO())] == [[row]]


TELLS = {"routing": ("routing", ()), "latency": ("latency", ()), "compare": ("latency", ("compare", "a", "b"))}


@pytest.mark.parametrize("name", ["macs", *TELLS])
def test_a_command_that_tells_of_its_own_progress_is_not_talked_over(name, terminal, monkeypatch):
    command, argv = TELLS.get(name, (name, ()))
    main = import_module(f"headcount.bench.{command}.__main__")
    planned = import_module(f"headcount.bench.latency.{name}") if name == "compare" else main

    def plan(*args):
        if name in TELLS:
            time.sleep(0.05)
        else:
            until("a command, 0 s", terminal)
        return "planned"

    monkeypatch.setattr(planned, "plan", plan)
    assert main.main(argv, prog="a command") == 0
    assert ("a command" in terminal.getvalue()) == (name not in TELLS)
