"""``headcount COMMAND``: which commands there are, and what it says to anything else."""

import subprocess
from pathlib import Path

import pytest

import headcount
from headcount import __main__ as command
from headcount.models.configs.presets import PRESETS

ROOT = Path(headcount.__file__).parents[1]
VALID = "choose from macs, latency, derive, budget, routing, lock, report"


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
def test_unknown_command_suggests(words, said, capsys):
    assert command.main(words) == 2
    assert capsys.readouterr() == ("", f"headcount: error: {said}\n")


def test_interrupt_during_import(monkeypatch, capsys):
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


def test_bash_completion(capsys):
    assert command.main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "la") == ["latency"]
    assert completed(script, "macs", "--allow") == ["--allow-uncounted"]
    assert completed(script, "macs", "--table", "moa-table") == ["moa-table1", "moa-table2", "moa-table3"]
    assert completed(script, "derive", "--preset", "moa-8K8E") == [n for n in PRESETS if n.startswith("moa-8K8E")] != []
    assert "test_command.py" in completed(script, "lock", "--check", f"{Path(__file__).parent}/test_c")[0]
