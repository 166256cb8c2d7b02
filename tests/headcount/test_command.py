"""``headcount COMMAND``: dispatch, Ctrl-C during imports, and shell completion. Errors are in tests/golden."""

import subprocess
from pathlib import Path

import pytest

from headcount import __main__ as command
from headcount.models.configs.presets import PRESETS
from tests.golden.conftest import run


def test_interrupt_during_import(monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", interrupt)
    ended = run("table")
    assert (ended.code, ended.err) == (130, "\nheadcount: interrupted\n")


def test_no_command_prints_help():
    ended = run("")
    assert (ended.code, ended.err) == (2, "") and all(f"\n  {name} " in ended.out for name in command.COMMANDS)


@pytest.mark.parametrize("name", command.COMMANDS)
def test_help_is_a_page(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(f"{name} --help")
    assert ended.code == 0 and 5 < ended.out.count("\n") <= 75


def complete(script, *words):
    """Return the completions that bash offers for the last of ``words`` after headcount."""
    line = " ".join(f"'{word}'" for word in ("headcount", *words))
    program = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_headcount; echo ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completion():
    script = run("--print-completion bash").out
    assert complete(script, "la") == ["latency"]
    assert complete(script, "table", "moa-table") == ["moa-table1", "moa-table2", "moa-table3"]
    assert complete(script, "derive", "--preset", "moa-8K8E") == [n for n in PRESETS if n.startswith("moa-8K8E")] != []
    assert "test_command.py" in complete(script, "lock", "--check", f"{Path(__file__).parent}/test_c")[0]
