"""``headcount COMMAND``: which commands there are, and what it says to anything else."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import headcount
from headcount import __main__ as command
from headcount.models.configs.presets import PRESETS

ROOT = Path(headcount.__file__).parents[1]
VALID = "choose from macs, latency, derive, budget, routing, lock, report"


def test_every_folder_with_a_main_is_a_command():
    folders = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in ROOT.glob("[br]e*/**/__main__.py")}
    folders -= {"bench"}  # python -m bench says only which there are
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
        (["--format", "json"], "unrecognized arguments: --format json"),
    ],
)
def test_what_is_no_command_is_named_with_the_nearest_and_the_valid(words, said, capsys):
    assert command.main(words) == 2
    assert capsys.readouterr() == ("", f"headcount: error: {said}\n")


@pytest.mark.parametrize("words", [["--print-completion", "fish"], ["--print-completion"], ["--"], ["-"]], ids=" ".join)
def test_options_that_it_does_not_take_are_one_line(words, capsys):
    assert command.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("headcount: error: ") and err.count("\n") == 1


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


def completed(script, *words):
    """What bash offers for the last of some words behind headcount."""
    line = " ".join(f"'{word}'" for word in ("headcount", *words))
    ask = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_headcount; echo ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout.split()


def test_a_shell_completes_commands_options_and_their_choices(capsys):
    assert command.main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "la") == ["latency"]
    assert completed(script, "macs", "--allow") == ["--allow-uncounted"]
    assert completed(script, "macs", "--table", "moa-table") == ["moa-table1", "moa-table2", "moa-table3"]
    assert completed(script, "derive", "--preset", "moa-8K8E") == [n for n in PRESETS if n.startswith("moa-8K8E")] != []
    assert "test_command.py" in completed(script, "lock", "--check", f"{Path(__file__).parent}/test_c")[0]


def test_zsh_has_its_own_and_it_names_every_command(capsys):
    assert command.main(["--print-completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("#compdef headcount")
    assert all(f"_shtab_headcount_{name}_options" in out for name in command.COMMANDS)


def test_completion_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert command.main(["--print-completion", "bash"]) == 3
    assert capsys.readouterr() == (
        "",
        "headcount: error: completion needs shtab; pip install 'headcount[completion]'\n",
    )
