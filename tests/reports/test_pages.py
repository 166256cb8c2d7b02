"""What every page of the report keeps to. The stored pages are read: another test holds them to what is made now."""

import csv
import io
import re
import shlex
from concurrent.futures import Executor
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from headcount.bench.table import Column
from headcount.reports import document, pages
from headcount.reports.counting import parts
from headcount.reports.document import Page, Section
from headcount.reports.explorer import page as explorer
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "reports" / "generated"
PAGES = pages.load(Facts())
NAMES = list(PAGES)


def text_of(name):
    return (GENERATED / f"{name}.md").read_text("utf-8")


def sections(text):
    """The sections of a page by title, without what stands before the first."""
    found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def commands(section):
    """The commands below a section's text, which are its last block of code."""
    blocks = re.findall(r"^```sh\n(.*?)\n```", section, re.DOTALL | re.MULTILINE)
    return blocks[-1].splitlines() if blocks and section.rstrip().endswith("```") else []


def test_the_generated_folder_holds_what_is_made_and_nothing_else():
    made = {name for page in PAGES.values() for name in page.outputs()} | {explorer.FILE}
    assert {path.name for path in GENERATED.iterdir()} == made


@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_larger_than_40_kb(name):
    assert len(text_of(name).encode()) <= document.LARGEST == 40_000


@pytest.mark.parametrize("name", NAMES)
def test_no_table_has_more_than_eight_columns(name):
    rules = [line for line in text_of(name).splitlines() if re.fullmatch(r"\|( :?-+:? \|)+", line)]
    assert all(line.count("|") - 1 <= document.MOST_COLUMNS == 8 for line in rules)
    assert rules or name.startswith("examples")


@pytest.mark.parametrize("name", NAMES)
def test_every_section_ends_with_its_commands_and_they_parse(name):
    for title, section in sections(text_of(name)).items():
        found = commands(section)
        assert found, title
        for command in found:
            if command.startswith("make "):
                assert f"\n{shlex.split(command)[1]}:" in (ROOT / "Makefile").read_text()
                continue
            package, arguments = parts(command)
            module = import_module(f"headcount.{package}" + (".__main__" if "compile" not in package else ""))
            if "--help" not in arguments and hasattr(module, "parser"):
                module.parser().parse_args(arguments)


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_there_and_says_what_it_shows(name):
    for dark, alternative, target in re.findall(r'srcset="(.*?)">\n<img alt="(.*?)" src="(.*?)"', text_of(name)):
        assert len(alternative) > 60, target
        for file in (dark, target):
            drawn = (GENERATED / file).read_text("utf-8")
            assert unescape(alternative) == unescape(re.search(r"<dc:description>(.*?)</dc:description>", drawn)[1])


@pytest.mark.parametrize("name", [*NAMES, "README"])
def test_every_link_leads_somewhere(name):
    text, folder = (text_of(name), GENERATED) if name in NAMES else ((ROOT / "README.md").read_text("utf-8"), ROOT)
    for target, anchor in re.findall(r"\]\(([\w./-]*?)(#[^)]*)?\)", text):
        path = folder / target if target else GENERATED / f"{name}.md"
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor[1:] in map(document.anchor, titles)


@pytest.mark.parametrize("path", sorted(GENERATED.glob("*.csv")), ids=lambda path: path.name)
def test_data_has_a_field_for_each_column_in_each_row(path):
    head, *rows = csv.reader(io.StringIO(path.read_text("utf-8")))
    assert rows and len(set(head)) == len(head) and {len(row) for row in rows} == {len(head)}


def test_the_first_page_links_to_every_other():
    assert document.texts("index.pages").keys() | {"index"} == PAGES.keys()
    assert all(f"]({name}.md)" in text_of("index") for name in document.texts("index.pages"))


class Refusing(Executor):
    """Counts nothing."""

    def submit(self, call, /, *args):
        raise AssertionError(f"{call.__name__} is asked for")


@pytest.mark.parametrize("name", ["choose", "commands", "method", "moh", "notation", "time"])
def test_a_page_of_closed_forms_and_records_counts_nothing(name):
    facts = Facts(Refusing(), recount=True)
    PAGES[name].begin(facts)
    assert all(make(facts) for make in PAGES[name].outputs().values())


def test_no_number_of_the_counters_stands_on_a_page_twice_where_the_data_has_it():
    readings = (GENERATED / "readings.csv").read_text()
    assert readings.count("\n") == 1 + 5 * 66
    assert "180672" in readings and "180,672" not in text_of("counters")


def made_up(*parts, commands=()):
    return Page("p", "A page", lambda facts: "About.", [Section("One", parts, commands)])


def test_a_section_without_a_command_names_the_one_that_makes_its_page():
    assert (
        made_up(lambda facts: "text").text(None).endswith("## One\n\ntext\n\n```sh\npython -m reports --only p\n```\n")
    )
    assert "```sh\na\nb\n```" in made_up(lambda facts: "text", commands=("a", "b")).text(None)


def test_a_page_that_is_too_large_or_has_a_title_twice_is_not_made():
    with pytest.raises(ValueError, match="^page p has 40,0.. bytes, more than 40,000$"):
        made_up(lambda facts: "x" * 39_970).text(None)
    page = made_up(lambda facts: "x")
    with pytest.raises(ValueError, match="^page p has a title twice$"):
        Page("p", "P", page.about, [*page.sections, *page.sections]).text(None)


def test_a_table_too_wide_or_without_rows_is_not_made():
    columns = [Column(str(i), str(i)) for i in range(9)]
    with pytest.raises(ValueError, match="^9 columns and 1 rows: 0, 1"):
        document.table(columns, [dict.fromkeys(map(str, range(9)))])
    with pytest.raises(ValueError, match="^8 columns and 0 rows"):
        document.table(columns[:8], [])


def test_a_table_is_a_line_for_each_row_and_a_number_for_each_note():
    columns = [Column("a", "A\nb"), Column("n", "n", unit="M", kind="fixed", scale=10**6, digits=1)]
    rows = [{"a": "x|y", "n": 1_234_567}, {"a": None, "n": None}]
    assert document.table(columns, rows, [["why", "too"], ["why"]]).splitlines() == [
        "| A b | n M |",
        "| :-- | --: |",
        r"| x\|y | 1.2 [1] [2] |",
        "| – | – [1] |",
        "",
        "[1] why",
        "",
        "[2] too",
    ]
