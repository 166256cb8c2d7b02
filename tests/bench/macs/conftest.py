"""Commands, run in this process."""

import json

import pytest

from headcount.__main__ import main


@pytest.fixture
def command(capsys):
    """Return a function that runs ``headcount`` with words, and returns its exit code, output and errors."""
    return lambda *argv: (main(argv), *capsys.readouterr())


@pytest.fixture
def tables(command):
    """Return a function that runs ``headcount`` with words, and returns the rows of its JSON by table."""

    def run(*argv):
        code, out, err = command(*argv, "--format", "json")
        assert code == 0, err
        return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}

    return run
