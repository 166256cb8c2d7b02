"""Lines of code of each folder against tests/line_budgets.toml."""

import ast
import io
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("headcount", "formulas", "models", "bench", "reports")
SKIPPED = {"__pycache__", ".venv", "build"}
BUDGETS = tomllib.loads((ROOT / "tests" / "line_budgets.toml").read_text("utf-8"))
FOLDERS = {folder: name for name in BUDGETS["folders"] for folder in name.split(" + ")}
ROWS = {**BUDGETS["totals"], **BUDGETS["folders"]}
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(source: str) -> int:
    """Return the number of lines of code, without blank lines, comments and docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines.difference_update(range(statement.lineno, statement.end_lineno + 1))
    return len(lines)


def row_of(path: Path) -> str:
    """Return the budget row of the nearest parent folder that has one."""
    return next(FOLDERS[str(folder)] for folder in path.parents if str(folder) in FOLDERS)


@pytest.fixture(scope="module")
def code_lines():
    """Return the lines of code of each row, including files that git does not track."""
    found = Counter()
    for folder in (*PRODUCT, "tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT)
            if SKIPPED & set(path.parts):
                continue
            lines = lines_of_code(file.read_text("utf-8"))
            found["tests" if folder == "tests" else "product"] += lines
            if folder != "tests":
                found[row_of(path)] += lines
    return found


@pytest.mark.parametrize("name", ROWS)
def test_lines_within_limit(name, code_lines):
    assert code_lines[name] <= ROWS[name]["limit"]


@pytest.mark.parametrize("name", ROWS)
def test_limit_above_goal_has_reason(name):
    row = ROWS[name]
    above = row["limit"] > row["goal"]
    assert row["limit"] >= row["goal"] and bool(row.get("reason")) == above


def test_every_product_line_is_in_one_row(code_lines):
    assert sum(code_lines[name] for name in BUDGETS["folders"]) == code_lines["product"]


def test_lines_of_code():
    source = '"""A\ndocstring."""\n\n# a comment\nx = """two\nlines"""  # code\n"""Of x."""\n\n\ndef f():\n    "d"\n'
    assert lines_of_code(source) == 3
