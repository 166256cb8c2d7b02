"""Product code evaluates text, loads code from data, starts processes and writes files only where it is allowed."""

import ast

import pytest

from tests.headcount.sources import PACKAGES, modules, tree

RUNS_TEXT = {"eval", "exec", "compile", "__import__", "execfile", "input", "breakpoint"}
ATTRIBUTES = {
    **dict.fromkeys(("sympify", "parse_expr", "lambdify", "parse_latex", "S"), "sympy"),
    **dict.fromkeys(("system", "popen", "spawnv", "spawnl", "spawnvp", "execv", "execl", "execvp"), "os"),
    **dict.fromkeys(("fork", "forkpty", "posix_spawn", "startfile"), "os"),
    **dict.fromkeys(("read_pickle", "read_sql", "query", "eval"), "pandas"),
}
"""Module of each forbidden function."""
MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "yaml", "code", "codeop", "pty", "subprocess"}
MODULES |= {"xmlrpc", "socket", "urllib", "http", "requests", "ftplib", "telnetlib", "ctypes"}
"""Forbidden modules."""
WRITES = {"write_text", "write_bytes", "savefig", "to_csv", "to_pickle", "mkstemp", "NamedTemporaryFile"}

ALLOWED = {
    "bench/targets/watched.py": {"subprocess": "this command again, from a list of words, without a shell"},
    "bench/trace/collector.py": {"ctypes": "a setting of the allocator of this process"},
    "bench/env.py": {"subprocess": "git, from a list of words, about this checkout"},
    "bench/output/figure.py": {"savefig": "into memory; bench/output/files.py writes it"},
    "reports/plots/plot.py": {"savefig": "into memory; the report writes the text"},
    "bench/output/files.py": {
        "open": "the one place that writes files: whole or not at all",
    },
    "bench/records.py": {"open": "the one place that appends to files"},
}
"""Allowed calls by file, with the reason."""


def calls(parsed):
    """Return the forbidden names in a syntax tree."""
    found = []
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            found += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "").partition(".")[0], *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call):
            found += list(_of_call(node))
    return [name for name in found if name in {*MODULES, *ATTRIBUTES, *RUNS_TEXT, *WRITES, *SPECIAL}]


SPECIAL = ("torch.load without weights_only=True", "shell=True", "open")


def _of_call(node):
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    of = getattr(getattr(node.func, "value", None), "id", "")
    named = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
    if isinstance(node.func, ast.Name) and name in RUNS_TEXT:
        yield name
    elif isinstance(node.func, ast.Attribute) and name in ATTRIBUTES:
        # a strict sympify parses no text, and model.eval() of torch takes no arguments
        strict = name == "sympify" and named.get("strict") is True
        if not strict and (of == ATTRIBUTES[name] or (name not in ("eval", "S", "query", "fork") and node.args)):
            yield name
    elif name in WRITES:
        yield name
    if name == "load" and of == "torch" and named.get("weights_only") is not True:
        yield SPECIAL[0]
    if named.get("shell"):
        yield SPECIAL[1]
    modes = [arg.value for arg in (*node.args, *(k.value for k in node.keywords)) if isinstance(arg, ast.Constant)]
    if name == "open" and any(isinstance(mode, str) and set(mode) & set("wxa+") and len(mode) < 4 for mode in modes):
        yield SPECIAL[2]
    if name == "open" and any(isinstance(arg, ast.JoinedStr | ast.IfExp) for arg in node.args[1:]):
        yield SPECIAL[2]


def test_no_forbidden_calls():
    found = {(path, name) for path in modules(*PACKAGES) for name in calls(tree(path))}
    assert found == {(path, name) for path, names in ALLOWED.items() for name in names}


SOURCES = {
    "eval": "eval(x)",
    "sympify": "sympy.sympify(x)",
    "parse_expr": "from sympy.parsing.sympy_parser import parse_expr",
    "pickle": "import pickle",
    "yaml": "from yaml import load",
    SPECIAL[0]: "torch.load(x)",
    "system": "os.system(x)",
    SPECIAL[1]: "f(x, shell=True)",
    SPECIAL[2]: "open(x, mode='ab')",
    "write_text": "path.write_text(x)",
}


@pytest.mark.parametrize("name", SOURCES)
def test_forbidden_calls_are_found(name):
    assert name in calls(ast.parse(SOURCES[name]))
