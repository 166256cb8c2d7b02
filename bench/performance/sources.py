"""Fingerprints of the Triton kernels: two launches with equal ones run the same code. Imports no torch."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

FOLDER = "headcount.models.kernels"
FILES = ("triton_rows.py", "triton_attention.py")


def fingerprint(kernel: str, *launch: object) -> str:
    """Return a hash of a kernel's code, of all functions that it calls, and of how it is launched.

    Comments, docstrings and layout are left out.
    """
    code = [ast.dump(definition) for definition in _closure(f"{kernel}_kernel")]
    return hashlib.sha256(repr((code, launch)).encode()).hexdigest()[:12]


def is_own(function: str) -> bool:
    """Return whether a kernel of a GPU, by its name, is one of these."""
    return function in _definitions()


def _closure(name: str) -> Iterator[ast.stmt]:
    """Yield the definition of a name, and those of all names in it, each once."""
    known, wanted, done = _definitions(), [name], {name}
    while wanted:
        definition = known.get(wanted.pop(0))
        if definition is None:
            continue
        yield definition
        used = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)} - done
        wanted += sorted(used)
        done |= used


@cache
def _definitions() -> dict[str, ast.stmt]:
    """Return the functions and constants of the files of kernels by name, functions without their docstrings."""
    found: dict[str, ast.stmt] = {}
    for file in FILES:
        for statement in ast.parse(files(FOLDER).joinpath(file).read_text("utf-8")).body:
            if isinstance(statement, ast.FunctionDef):
                if ast.get_docstring(statement) is not None:
                    statement.body = statement.body[1:]
                found[statement.name] = statement
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                found[statement.targets[0].id] = statement
    return found
