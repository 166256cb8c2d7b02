"""The pages of examples show the words that commands print. Their numbers are held elsewhere, by what is no output of
ours, and are left out here."""

import re

import pytest

from headcount.bench.records import shipped
from headcount.reports.pages import examples, examples_own

# what counts a module starts a process for each command: seconds, which the report's own check takes
EVERY = {one.title: one for one in (*examples.EXAMPLES, *examples_own.EXAMPLES)}
QUICK = [title for title, one in EVERY.items() if "model.py" not in " ".join(one.commands)]
PAGES = [shipped().parent / "generated" / f"{name}.md" for name in ("examples", "examples-own")]


def shown(title):
    """The lines of the blocks in a section of its page, without the commands at its end."""
    for page in PAGES:
        found = re.search(rf"^## {title}\n\n```\w+\n(.*?)\n```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        if found:
            return found[1].splitlines()
    raise AssertionError(f"no page shows {title!r}")


def words(line):
    return re.sub(r"\d", "#", line)


@pytest.mark.parametrize("title", QUICK)
def test_a_command_says_what_its_page_shows(title):
    printed = [line for lines in EVERY[title].outputs() for line in lines]
    assert [words(line) for line in printed] == [words(line) for line in shown(title) if not line.startswith("$ ")]
