"""What comes from somebody's program is code in markdown: no markup, no link, no mention."""

import io

import pytest

from headcount.bench.render import emit
from headcount.bench.table import Column, Row, Section, Table


@pytest.mark.parametrize(
    "name, shown",
    [
        ("layers.*.self_attn", "`layers.*.self_attn`"),
        ("model.py:make", "`model.py:make`"),
        ("", ""),
        ("@all", "<code>&#64;all</code>"),
        ("a|b`c\\", "<code>a&#124;b&#96;c&#92;</code>"),
        ("<b>\n#1", "<code>&#60;b&#62;&#65533;&#35;1</code>"),
        ("évidé", "<code>évidé</code>"),
        ("a ", "<code>a </code>"),
    ],
)
def test_markdown_escapes_names(name, shown):
    stream = io.StringIO()
    layout = Table("t", "T", [Column("name", "name", code=True), Column("other", "other")])
    emit([Section(layout, [Row({"name": name, "other": "x"})])], "md", stream)
    *_, row = stream.getvalue().rstrip().splitlines()
    assert [cell.strip() for cell in row.split("|")] == ["", shown, "x", ""]
