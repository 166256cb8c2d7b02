"""What the papers print that costs nothing, and where this software departs from their code: read from text."""

from pathlib import Path

import pytest

from headcount.formulas.published import data, departures, tables

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


def test_a_data_table_has_its_columns_and_entries_as_typed(tmp_path):
    typed = data.typed(folder(tmp_path, '{row = "a", score = 7}, {row = "b"}'))
    (table,) = typed.values()
    assert list(typed) == [table.name] == ["made-up"]
    assert (table.title, table.paper, table.order) == ("A title", "moa", 1)
    assert [(column.key, column.head) for column in table.columns] == [("row", "Row"), ("score", "BLEU")]
    assert table.entries == ({"row": "a", "score": 7}, {"row": "b"})
    assert table.column("score") == [7] and table.column("row") == ["a", "b"]


def test_data_tables_stand_in_their_order(tmp_path):
    for name, order in (("last", 3), ("first", 2), ("also-first", 2)):
        folder(tmp_path, '{row = "a"}', order, name)
    assert list(data.typed(tmp_path)) == ["also-first", "first", "last"]


@pytest.mark.parametrize("entry", ['{row = "a", other = 1}', "{score = 7}", "{other = 1}"])
def test_a_cell_of_no_column_and_an_entry_without_its_first_are_refused(entry, tmp_path):
    with pytest.raises(ValueError, match=r"^made-up: the entry \{.*\} has not the cells row, score$"):
        data.typed(folder(tmp_path, f'{{row = "a", score = 7}}, {entry}'))


def test_tables_of_one_paper_are_named_alone():
    every = tables.names()
    assert set(tables.names("moa")) | set(tables.names("moh")) < set(every)
    assert tables.names("moa") == tuple(name for name in every if tables.load(name).paper == "moa")


DEPARTURE = """
[[departure]]
paper = "moa"
what = "what"
theirs = "theirs"
ours = "ours"
why = "why"
"""


def test_a_departure_has_a_field_or_a_reason_why_there_is_none():
    by_field, without = departures.read(DEPARTURE + 'field = "gates"' + DEPARTURE + 'no_field = "why"\nfile = "f"')
    assert (by_field.field, by_field.no_field, by_field.file) == ("gates", "", "")
    assert (without.field, without.no_field, without.file) == ("", "why", "f")
    for both in ("", 'field = "gates"\nno_field = "why"'):
        with pytest.raises(ValueError, match="^what: name a field, or say why there is none$"):
            departures.read(DEPARTURE + both)


class Elsewhere(type(Path())):
    """Files on a machine whose own encoding is another."""

    def read_text(self, encoding=None):
        return super().read_text(encoding or "latin-1")


def test_departures_are_read_alike_on_every_machine(monkeypatch, tmp_path):
    text = DEPARTURE.replace('"theirs"', '"thüirs"') + 'field = "gates"'
    (tmp_path / "departures.toml").write_bytes(text.encode("utf-8"))
    monkeypatch.setattr(departures, "files", lambda package: Elsewhere(tmp_path))
    assert departures.load()[0].theirs == "thüirs"


def test_the_typed_departures_are_of_the_papers_and_complete():
    found = departures.load()
    assert {one.paper for one in found} >= {"moa", "moh"}
    assert all(one.what and one.theirs and one.ours and one.why for one in found)
