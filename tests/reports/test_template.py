"""Markers of pages: their values, and the errors of wrong ones."""

import pytest

from headcount.bench.errors import UsageError
from headcount.reports import template
from headcount.reports.blocks import notation
from headcount.reports.document import File


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a function that stores a page, with blocks of its own in the subject ``notation``."""
    monkeypatch.setattr(template, "ROOT", tmp_path)
    monkeypatch.setattr(template, "GENERATED", tmp_path / "generated")
    monkeypatch.setattr(notation, "savings", lambda facts: {"length": 1786, "words": "one\n\ntwo"}, raising=False)
    monkeypatch.setattr(notation, "told", lambda facts, name: f"of {name}", raising=False)
    monkeypatch.setattr(notation, "data", File("a.csv", lambda facts: "a,b\n"), raising=False)

    def store(text, in_place=False):
        path = tmp_path / "page.md"
        path.write_text(text, "utf-8")
        monkeypatch.setattr(template, "IN_PLACE", (path,) if in_place else ())
        return path

    return store


def test_markers_become_values(page):
    source = page("{{contents}}\n\n## One & two\n\nFrom T = {{notation.savings.length:,}}, {{notation.told a: b}}.\n")
    text = "[One & two](#one--two)\n\n## One & two\n\nFrom T = 1,786, of a: b.\n"
    assert template.fill(source, None) == text


def test_page_brings_its_files(page, tmp_path):
    made = template.outputs(page("Rows: {{notation.data}}.\n"))
    assert {path.relative_to(tmp_path).as_posix(): make(None) for path, make in made.items()} == {
        "generated/page.md": "Rows: [a.csv](a.csv).\n",
        "generated/a.csv": "a,b\n",
    }


def test_fill_in_place_keeps_markers(page):
    before = "a\n<!-- {{notation.told x}} -->\nold {{b}}\n<!-- end -->\nc\n<!-- {{notation.told y}} -->\n<!-- end -->\n"
    filled = before.replace("old {{b}}", "of x").replace("y}} -->\n<", "y}} -->\nof y\n<")
    assert template.fill(page(before, in_place=True), None) == filled
    source = page(filled, in_place=True)
    assert template.fill(source, None) == filled and list(template.outputs(source)) == [source]


@pytest.mark.parametrize(
    "marker, expected",
    [
        ("{{notaton.savings}}", "page.md:3: unknown {{notaton.savings}}; subjects are cards, choose, claims, "),
        ("{{contnets}}", "page.md:3: unknown {{contnets}}; subjects are cards, choose, "),
        ("{{ notation.savings }}", "page.md:3: unknown {{ notation.savings }}; subjects are cards, choose, "),
        ("{{notation.saving}}", "page.md:3: unknown {{notation.saving}}; notation has letters, savings, told, data"),
        ("{{notation.told}}", "page.md:3: {{notation.told}}: missing a required argument: 'name'"),
        ("{{notation.data x}}", "page.md:3: {{notation.data x}}: too many positional arguments"),
    ],
)
def test_unknown_marker_names_choices(marker, expected, page):
    with pytest.raises(UsageError) as error:
        template.outputs(page(f"a\n\nb {marker}\n"))
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)
