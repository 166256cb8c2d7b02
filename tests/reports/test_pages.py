"""Properties of every stored page of the report."""

import re
import shlex
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path

import pytest

from headcount.reports import document, template
from headcount.reports.counting import parse_command
from headcount.reports.facts import Facts

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "reports" / "generated"
FILES = {name: next(iter(template.outputs(source))) for name, source in template.sources().items()}
"""The file of each page, README and guide."""
NAMES = [name for name, path in FILES.items() if path.parent == GENERATED]


def text_of(name):
    return FILES[name].read_text("utf-8")


def sections(text):
    """Return the sections of a page by title."""
    found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def commands(section):
    """Return the commands of a section, which are its last block of code."""
    blocks = re.findall(r"^```sh\n(.*?)\n```", section, re.DOTALL | re.MULTILINE)
    return blocks[-1].replace(" \\\n", "").splitlines() if blocks and section.rstrip().endswith("```") else []


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_sections_parse(name):
    for title, section in sections(text_of(name)).items():
        found = commands(section)
        assert found, title
        for command in found:
            if command.startswith("make "):
                assert f"\n{shlex.split(command)[1]}:" in (ROOT / "Makefile").read_text()
                continue
            name, arguments = parse_command(command)
            module = import_module(f"headcount.{name}")
            if "--help" not in arguments and hasattr(module, "parser"):
                module.parser(" ".join(shlex.split(command)[:2])).parse_args(arguments)


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_small(name):
    text = text_of(name)
    assert len(text.encode()) <= 40_000
    assert all(line.replace(r"\|", "").count("|") <= 9 for line in text.splitlines() if line.startswith("| "))


@pytest.mark.parametrize("name", FILES)
def test_links_resolve(name):
    for target, anchor in re.findall(r"\]\(([\w./-]*?)(#[^)]*)?\)", text_of(name)):
        path = FILES[name].parent / target if target else FILES[name]
        assert path.exists(), target
        # the anchors of the API page are those of its docstrings
        if anchor and path.name != "api.md":
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor[1:] in map(document.anchor, titles)


class Refusing(Executor):
    """Executor that fails instead of running a call."""

    def submit(self, call, /, *args):
        raise AssertionError(f"{call.__name__} is called")


@pytest.mark.parametrize("name", ["commands", "libraries", "method", "moh", "notation", "training"])
def test_closed_form_pages_count_nothing(name):
    facts = Facts(Refusing(), recount=True)
    made = {path: make(facts) for path, make in template.outputs(template.sources()[name]).items()}
    assert all(made.values())
    # spreadsheets read decimals
    assert not [path for path, text in made.items() if path.suffix == ".csv" and re.search(r",\d+/\d+\b", text)]
