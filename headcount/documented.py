"""Docstrings that are data, a command's help or what a rule bills: ``python -OO`` strips them, the source has them."""

import inspect
import sys
from typing import Any


def said(thing: Any) -> str:
    """The docstring of a function, or of the imported module of that name; empty where there is none to read."""
    thing = sys.modules[thing] if isinstance(thing, str) else thing
    return _in_source(thing) if thing.__doc__ is None else inspect.cleandoc(thing.__doc__)


def _in_source(thing: Any) -> str:
    import ast
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError):
        return ""
    return ast.get_docstring(tree if inspect.ismodule(thing) else tree.body[0]) or ""
