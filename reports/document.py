"""What a page is: sections with the commands that print them, and the files that stand beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headcount.reports import markdown
from headcount.reports.facts import Facts

Maker = Callable[[Facts], str]
"""Makes a text from facts."""

LARGEST = 40_000
"""Bytes that a page may have."""


@dataclass(frozen=True)
class Section:
    """A heading, what stands below it, and the commands that give it; none where only this one does."""

    title: str
    parts: Sequence[Maker]
    commands: Sequence[str]


@dataclass(frozen=True)
class Page:
    """A page ``name``.md, and its ``files`` beside it: plots and data by name. ``begin`` starts what takes long."""

    name: str
    title: str
    about: Maker
    sections: Sequence[Section]
    files: Mapping[str, Maker] = field(default_factory=dict)
    begin: Callable[[Facts], object] = lambda facts: None

    def outputs(self) -> dict[str, Maker]:
        """The makers of the page and of its files, by the file's name."""
        return {f"{self.name}.md": self.text, **self.files}

    def text(self, facts: Facts) -> str:
        """The page. ValueError where it is larger than LARGEST, or where its table of contents would lie."""
        titles = [section.title for section in self.sections]
        if len(set(titles)) != len(titles):
            raise ValueError(f"page {self.name} has a title twice")
        contents = " · ".join(f"[{title}](#{markdown.anchor(title)})" for title in titles)
        made = "\n\n".join(
            [f"# {self.title}", self.about(facts), *([contents] if len(titles) > 1 else [])]
            + [markdown.section(s.title, *(part(facts) for part in s.parts), self._commands(s)) for s in self.sections]
        )
        made += "\n"
        if len(made.encode()) > LARGEST:
            raise ValueError(f"page {self.name} has {len(made.encode()):,} bytes, more than {LARGEST:,}")
        return made

    def _commands(self, section: Section) -> str:
        commands = section.commands or [f"python -m reports --only {self.name}"]
        return "\n".join(["```sh", *commands, "```"])
