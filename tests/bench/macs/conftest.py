"""Commands of bench.macs, run in this process."""

import json

import pytest

from headcount.bench.macs.__main__ import main


@pytest.fixture
def macs(capsys):
    """Return a function that runs ``headcount macs`` and returns its exit code, output and errors."""
    return lambda *argv: (main(argv), *capsys.readouterr())


@pytest.fixture
def tables(macs):
    """Return a function that runs ``headcount macs`` and returns the rows of its JSON by table."""

    def run(*argv):
        code, out, err = macs(*argv, "--format", "json")
        assert code == 0, err
        return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}

    return run
