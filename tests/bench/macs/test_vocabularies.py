"""headcount macs --params: the vocabularies that a table's printed parameters imply, where no rule judges them."""

import json

import pytest

from headcount.bench.case import Case
from headcount.bench.macs.__main__ import main
from headcount.models.configs.presets import parse_overrides


@pytest.fixture
def implied(capsys):
    """A table's section of vocabularies, as JSON has it."""

    def ask(name):
        assert main(["--table", name, "--params", "--counter", "closed-form", "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)["tables"][1]

    return ask


def params(preset, words):
    return Case.of(preset, parse_overrides(preset, [f"vocab_size={words}"])).ledger.params


def test_vocabulary_range_is_tight(implied):
    row = implied("moa-table1")["rows"][0]
    assert (row["row"], row["printed_En-De"], row["printed_En-Fr"]) == ("Transformer base (Vaswani 2017)", "65M", "62M")
    for pair, printed in (("En-De", 65), ("En-Fr", 62)):
        low, high = row[f"low_{pair}"], row[f"high_{pair}"]
        sizes = [params("transformer-base", words) / 10**6 for words in (low - 1, low, high, high + 1)]
        assert sizes[0] < printed - 0.5 <= sizes[1] < sizes[2] < printed + 0.5 <= sizes[3]
