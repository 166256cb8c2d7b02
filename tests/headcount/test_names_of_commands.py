"""A command says the name that it was started by."""

from importlib import import_module

import pytest

from headcount.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_errors_and_help_name_the_command_that_was_started(name, capsys):
    module = import_module(f"headcount.{COMMANDS[name][0]}.__main__")
    for start, prog in ((lambda words: main([name, *words]), f"headcount {name}"), (module.main, module.PROG)):
        assert start(["--nothing"]) == 2
        assert capsys.readouterr().err.startswith(f"{prog}: error: ")
        with pytest.raises(SystemExit):
            start(["--help"])
        out = capsys.readouterr().out
        assert out.startswith(f"usage: {prog} ") and prog in out.partition("\n\n")[2] and "``" not in out
