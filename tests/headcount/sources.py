"""Syntax trees of the repository's modules, each parsed once."""

import ast
from functools import cache

import headcount

ROOT = headcount.CHECKOUT
PACKAGES = ("headcount", "bench", "formulas", "models", "reports")


def modules(*folders):
    """Return the paths of the modules in ``folders`` of the repository, relative to it."""
    return sorted(p.relative_to(ROOT).as_posix() for folder in folders for p in (ROOT / folder).rglob("*.py"))


@cache
def tree(path):
    """Return the syntax tree of a module by its path in the repository."""
    return ast.parse((ROOT / path).read_text("utf-8"))


def statements(node):
    """Yield the statements in a node, nested ones too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from statements(child)


def imported_names(node):
    """Return the top-level modules that a node imports; none where it is no import, or a relative one."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {node.module.partition(".")[0]} if isinstance(node, ast.ImportFrom) and not node.level else set()
