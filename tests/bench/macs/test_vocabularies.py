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


def test_a_range_holds_every_vocabulary_that_prints_the_row_s_parameters_and_no_other(implied):
    row = implied("moa-table1")["rows"][0]
    assert (row["row"], row["printed_En-De"], row["printed_En-Fr"]) == ("Transformer base (Vaswani 2017)", "65M", "62M")
    for pair, printed in (("En-De", 65), ("En-Fr", 62)):
        low, high = row[f"low_{pair}"], row[f"high_{pair}"]
        sizes = [params("transformer-base", words) / 10**6 for words in (low - 1, low, high, high + 1)]
        assert sizes[0] < printed - 0.5 <= sizes[1] < sizes[2] < printed + 0.5 <= sizes[3]


def test_one_vocabulary_for_all_rows_is_said_or_that_there_is_none(implied):
    table = implied("moa-table2")
    low, high = max(row["low_params"] for row in table["rows"]), min(row["high_params"] for row in table["rows"])
    assert table["below"] == [f"vocabularies {low:,} to {high:,} fit every row."]
    table = implied("moa-table1")
    for pair, said in zip(("En-De", "En-Fr"), table["below"], strict=True):
        rows = [row for row in table["rows"] if row[f"printed_{pair}"]]
        low, high = max(row[f"low_{pair}"] for row in rows), min(row[f"high_{pair}"] for row in rows)
        no = f"no vocabulary fits every row: one needs at least {low:,}, another at most {high:,}."
        assert low > high and said == f"{pair}: {no}"


def test_the_table_says_how_parameters_are_printed_and_which_vocabulary_the_models_have(capsys):
    main(["--table", "moa-table1", "--params", "--counter", "closed-form"])
    assert (
        "Closed-form parameters rounded half up to whole M, at every vocabulary size; the models above have 32,000."
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("table, implied", [("moa-table3", True), ("moh-llm", False), ("jetmoe", False)])
def test_a_table_says_where_its_vocabularies_are_where_it_implies_some(table, implied, capsys):
    assert main(["--table", table, "--counter", "closed-form"]) == 0
    assert ("--params shows the sizes that fit" in " ".join(capsys.readouterr().out.split())) == implied
