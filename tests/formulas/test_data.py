"""Data tables read from TOML."""

from headcount.formulas.published import data


def test_entries_have_known_cells():
    for table in data.load_tables().values():
        known = [column.key for column in table.columns]
        assert all(known[0] in entry and entry.keys() <= set(known) for entry in table.entries), table.name
