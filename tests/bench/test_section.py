"""A section: a table and its rows, and what is left of it where some columns are asked for."""

from dataclasses import replace

import pytest

from headcount.bench.table import Column, Row, Section, Table

COLUMNS = [Column("name", "layer"), Column("macs", "MACs", kind="int", of="MACs"), Column("verdict", "verdict")]
TABLE = Table("layers", "Layers", COLUMNS, note_column="verdict")


def test_footnotes_stand_in_the_last_column_where_their_own_is_left_out():
    section = Section(TABLE, [Row({"name": "x", "macs": 7, "verdict": "agrees"}, ["router"])])
    assert section.only("verdict", "name").table.note_column == "verdict"
    fewer = section.only("macs", "name")
    assert [column.key for column in fewer.table.columns] == ["macs", "name"]
    assert (fewer.table.note_column, fewer.rows) == ("name", section.rows)


def test_a_table_without_footnotes_stays_one_and_its_columns_are_known():
    section = Section(replace(TABLE, note_column=""), [])
    assert section.only("name").table.note_column == ""
    with pytest.raises(KeyError, match="params"):
        section.only("name", "params")
