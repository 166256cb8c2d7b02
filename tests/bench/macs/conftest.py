"""Commands of bench.macs, run in this process."""

import json

import pytest

from headcount.bench.macs.__main__ import main


@pytest.fixture
def macs(capsys):
    """Return a function that runs ``headcount macs`` or a verb, and returns its exit code, output and errors."""
    return lambda *argv, verb="macs": (main(argv, f"headcount {verb}"), *capsys.readouterr())


@pytest.fixture
def tables(macs):
    """Return a function that runs ``headcount macs`` or a verb, and returns the rows of its JSON by table."""

    def run(*argv, verb="macs"):
        code, out, err = macs(*argv, "--format", "json", verb=verb)
        assert code == 0, err
        return {table["name"]: table["rows"] for table in json.loads(out)["tables"]}

    return run
