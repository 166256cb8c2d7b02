"""Arguments of a command line: the layout of ``--help``, and numbers that an option takes."""

import argparse
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headcount.models.configs.numbers import LONGEST


class Help(argparse.HelpFormatter):
    """Paragraphs are broken at the terminal's width; lines that are set in are examples and keep theirs, but for what
    they say behind two spaces, which takes a line of its own where both do not fit."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._paragraph(part, width) for part in text.strip().split("\n\n"))

    def _paragraph(self, part: str, width: int) -> str:
        lines = part.split("\n")
        if not lines[0].startswith("    "):
            return textwrap.fill(" ".join(lines), width, break_on_hyphens=False)
        if max(map(len, lines)) <= width:
            return part
        return "\n".join(line for text in lines for line in _apart(text, width))


def _apart(line: str, width: int) -> list[str]:
    command, _, what = line.strip().partition("  ")
    return [f"    {command}", *textwrap.wrap(what.strip(), width, initial_indent=" " * 8, subsequent_indent=" " * 8)]


_ENDLESS = re.compile(r"[eE][+-]?[0-9_]{4,}")
"""An exponent that writes thousands of digits in few characters."""


@dataclass(frozen=True)
class Value:
    """What an option takes, for argparse: ``read`` of its text, where ``holds`` is true of that; else ``name`` says
    what was wanted."""

    name: str
    read: Callable[[str], Any]
    holds: Callable[[Any], bool] = lambda value: True

    def __call__(self, text: str) -> Any:
        try:
            # a number of thousands of digits is none that anybody means, takes long and cannot be printed again
            value = self.read(text) if len(text) <= LONGEST and not _ENDLESS.search(text) else None
        except (ValueError, ZeroDivisionError):
            value = None
        if value is None or not self.holds(value):
            raise argparse.ArgumentTypeError(f"invalid {self.name} value: {text!r}")
        return value
