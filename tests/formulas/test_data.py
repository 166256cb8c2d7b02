"""Data tables and departures from the papers, read from TOML."""

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


def test_entries_have_known_cells():
    for table in data.load_tables().values():
        known = [column.key for column in table.columns]
        assert all(known[0] in entry and entry.keys() <= set(known) for entry in table.entries), table.name


def test_departures_have_a_field_or_reason():
    assert all(bool(one.field) != bool(one.no_field) for one in departures.load())
