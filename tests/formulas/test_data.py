"""What the papers print that costs nothing, and where this software departs from their code: read from text."""

import pytest

from headcount.formulas.published import data, departures

TABLE = """
name = "made-up"
title = "A title"
paper = "moa"
order = {order}
source = "arXiv"
place = "Table 1"
column = [{{key = "row", head = "Row"}}, {{key = "score", head = "BLEU"}}]
entry = [{entries}]
"""


def folder(tmp_path, entries, order=1, name="made-up"):
    (tmp_path / f"{name}.toml").write_text(TABLE.format(entries=entries, order=order).replace("made-up", name))
    (tmp_path / "no_data.toml").write_text("row = 1")
    (tmp_path / "notes.txt").write_text("no TOML [")
    return tmp_path


def test_data_tables_are_ordered(tmp_path):
    for name, order in (("last", 3), ("first", 2), ("also-first", 2)):
        folder(tmp_path, '{row = "a"}', order, name)
    assert list(data.load_tables(tmp_path)) == ["also-first", "first", "last"]


@pytest.mark.parametrize("entry", ['{row = "a", other = 1}', "{score = 7}", "{other = 1}"])
def test_malformed_entry_raises(entry, tmp_path):
    with pytest.raises(ValueError, match=r"^made-up: the entry \{.*\} has not the cells row, score$"):
        data.load_tables(folder(tmp_path, f'{{row = "a", score = 7}}, {entry}'))


@pytest.mark.parametrize("field, no_field", [("", ""), ("gates", "why")])
def test_departure_needs_field_or_reason(field, no_field):
    texts = dict(paper="moa", what="what", theirs="theirs", ours="ours", why="why")
    assert departures.Departure(**texts, field="gates").no_field == ""
    with pytest.raises(ValueError, match="^what: name a field, or say why there is none$"):
        departures.Departure(**texts, field=field, no_field=no_field)
