"""Command-line arguments: the layout of ``--help``, and parsers of numbers."""

import argparse
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.models.configs.numbers import LONGEST, TYPE_BITS, parse_element_bytes, parse_int


class Help(argparse.HelpFormatter):
    """Layout of ``--help``: a usage of one line, and at most two lines for each option, its choices first.

    Paragraphs are wrapped at the terminal's width. Indented lines are examples and are not wrapped; the remark behind
    two spaces of an example goes to a separate line where both do not fit.
    """

    def __init__(self, prog: str, width: int) -> None:
        super().__init__(prog, max_help_position=26, width=width)

    def _format_usage(self, usage, actions, groups, prefix) -> str:
        words = [self._format_args(action, "") for action in actions if not action.option_strings]
        return f"usage: {usage or ' '.join((self._prog, *words, '[OPTION …]'))}\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._paragraph(part, width) for part in text.strip().split("\n\n"))

    def _paragraph(self, part: str, width: int) -> str:
        lines = part.split("\n")
        if not lines[0].startswith("    "):
            return textwrap.fill(" ".join(lines), width, break_on_hyphens=False)
        if max(map(len, lines)) <= width:
            return part
        return "\n".join(line for text in lines for line in _split_example(text, width))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, max_lines=2, placeholder=" …", break_on_hyphens=False)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        name = action.metavar or ("NAME" if action.choices else action.dest.upper())
        forms = {"+": f"{name} …", "*": f"[{name} …]", "?": f"[{name}]"}
        return forms.get(action.nargs, name)

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        if not action.choices or action.metavar:
            return text
        return f"{', '.join(action.choices)}{' ' if text.startswith('(') else ': '}{text}"


def _split_example(line: str, width: int) -> list[str]:
    command, _, what = line.strip().partition("  ")
    return [f"    {command}", *textwrap.wrap(what.strip(), width, initial_indent=" " * 8, subsequent_indent=" " * 8)]


_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9_]{4,}")
"""An exponent that writes thousands of digits in few characters."""


@dataclass(frozen=True)
class Value:
    """Type of an option for argparse: ``parse`` of its text, if that ``is_valid``; ``name`` describes it in errors."""

    name: str
    parse: Callable[[str], Any]
    is_valid: Callable[[Any], bool] = lambda value: True

    def __call__(self, text: str) -> Any:
        try:
            # a number of thousands of digits takes long and cannot be printed again
            value = self.parse(text) if len(text) <= LONGEST and not _HUGE_EXPONENT.search(text) else None
        except (ValueError, ZeroDivisionError):
            value = None
        if value is None or not self.is_valid(value):
            raise argparse.ArgumentTypeError(f"invalid {self.name} value: {text!r}")
        return value


COUNT = Value("positive integer", parse_int, lambda number: number >= 1)
ELEMENT = Value(f"number of bytes, as 2 and 0.5, or type ({', '.join(TYPE_BITS)})", parse_element_bytes)
SET: Mapping[str, Any] = {"action": "append", "metavar": "FIELD=VALUE", "default": []}
"""Arguments of an option that changes a field of a preset, and may be repeated."""


class NameList(argparse.Action):
    """Store a list of names, each of the choices if there are any; commas or spaces stand between them."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, **{"nargs": "+", "default": [], **options})

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        setattr(namespace, self.dest, [name for word in values for name in word.split(",")])
