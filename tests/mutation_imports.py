"""What a room runs while it is imported: mutmut gives it the tests that were the first to import it, and no other.

A table of functions is made once, at import; whoever looks up one of them later runs what another function made, and
mutmut notes nothing of that.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def run_at_import(text: str) -> set[str]:
    """The functions of a module's own that run while it is imported, those that they call among them."""
    tree = ast.parse(text)
    bodies = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found: set[str] = set()
    called = list(_called(_outside(tree)))
    while called:
        name = called.pop()
        if name in bodies and name not in found:
            found.add(name)
            called += _called(ast.walk(bodies[name]))
    return found


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """What is below ``node`` and in no function's body: defaults and decorators are."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for outside in (*child.decorator_list, child.args):
                yield outside
                yield from _outside(outside)
        elif not isinstance(child, ast.Lambda):
            yield from _outside(child)


def _called(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of functions that ``nodes`` call, as decorators too."""
    for node in nodes:
        functions = [node.func] if isinstance(node, ast.Call) else getattr(node, "decorator_list", ())
        yield from (function.id for function in functions if isinstance(function, ast.Name))


def add(statistics: Path, modules: Mapping[str, Path]) -> None:
    """Give each function that runs at import the tests of every function of its module; ``modules``: name -> file."""
    stats = json.loads(statistics.read_text())
    known = stats["tests_by_mangled_function_name"]
    for module, path in modules.items():
        beside = [tests for name, tests in known.items() if name.rpartition(".")[0] == module]
        every = list(dict.fromkeys(test for tests in beside for test in tests))
        for name in run_at_import(path.read_text("utf-8")):
            known[f"{module}.x_{name}"] = every
    statistics.write_text(json.dumps(stats))
