"""``headcount COMMAND``: which commands there are, and what it says to anything else."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import headcount
from headcount import __main__ as command

ROOT = Path(headcount.__file__).parents[1]
VALID = "choose from macs, latency, derive, budget, routing, lock, report"


def test_every_folder_with_a_main_is_a_command():
    folders = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in ROOT.glob("[br]e*/**/__main__.py")}
    assert {package for package, _ in command.COMMANDS.values()} == folders
    for package in folders:
        assert callable(import_module(f"headcount.{package}.__main__").main)


def test_the_rest_of_the_line_goes_to_the_command(capsys):
    assert command.main(["macs", "--list"]) == 0
    assert capsys.readouterr().out.startswith("tables    moa-table1, ")
    assert command.main(["macs", "--counter", "abacus"]) == 2
    assert "abacus" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        ([], f"no command; {VALID}"),
        (["mac"], f"unknown command 'mac'; did you mean macs? {VALID}"),
        (["Latencies"], f"unknown command 'Latencies'; did you mean latency? {VALID}"),
        (["xyz"], f"unknown command 'xyz'; {VALID}"),
        (["--format", "json"], "unrecognized arguments: --format"),
    ],
)
def test_what_is_no_command_is_named_with_the_nearest_and_the_valid(words, said, capsys):
    assert command.main(words) == 2
    assert capsys.readouterr() == ("", f"headcount: error: {said}\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([option])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in command.COMMANDS)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "headcount.__version__"}
    assert capsys.readouterr().out == f"headcount {headcount.__version__}\n"


def test_ctrl_c_while_a_command_is_imported_ends_it_in_a_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", interrupted)
    assert command.main(["macs"]) == 130
    assert capsys.readouterr().err == "\nheadcount: interrupted\n"
