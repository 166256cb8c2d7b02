"""The floor plan: how long a file may be, what stands in bench/, and that a variant is found by name, never named."""

import ast

import pytest

import headcount
from headcount.models.configs.registry import ATTENTIONS, MODELS, VARIANTS

ROOT = headcount.CHECKOUT
NAMES = (*VARIANTS, *MODELS)
AT_HOME = ("formulas/", "models/", "bench/variants/")
"""Where a variant may be named: its own files, the models that are made of them, and the registries."""


def modules(*rooms):
    """Every module of some rooms, by its path from the root."""
    return sorted(str(path.relative_to(ROOT)) for room in rooms for path in (ROOT / room).rglob("*.py"))


def test_bench_lists_at_most_15_files():
    files = sorted(path.name for path in (ROOT / "bench").iterdir() if path.is_file())
    assert len(files) <= 15, files


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_has_a_file_in_every_package(variant):
    homes = ["formulas", "models/configs", "bench/variants"]
    homes += ["models"] if ATTENTIONS[variant].module else []
    missing = [home for home in homes if not (ROOT / home / f"{variant}.py").is_file()]
    assert missing == []


def test_no_branch_on_a_variant_name():
    elsewhere = [path for path in modules("bench", "reports") if not path.startswith(AT_HOME)]
    lines = {path: branches((ROOT / path).read_text("utf-8")) for path in elsewhere}
    assert len(lines) > 100 and {path: found for path, found in lines.items() if found} == {}


def branches(source):
    """The lines that compare with a variant's name: ==, in, startswith, or a case of match."""
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if names_a_variant(node)})


def names_a_variant(node):
    if isinstance(node, ast.Compare) and not is_another_name(node.left):
        return any(text in NAMES for text in texts(node.left, *node.comparators))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "removeprefix"):
        # moh and moh-32 begin as a variant is called, mohair does not
        return any(text.partition("-")[0] in NAMES for text in texts(*node.args))
    return isinstance(node, ast.MatchValue) and any(text in NAMES for text in texts(node.value))


def is_another_name(node):
    """What an arm stands for beside others, as records store it: the dense layer's role is called mha; or an event's
    name, which is torch's for an operator: one is called convolution."""
    if isinstance(node, ast.Attribute):
        return node.attr == "name" and getattr(node.value, "id", None) == "event"
    return isinstance(node, ast.Subscript) and texts(node.slice) == ["role"]


def texts(*nodes):
    lists = (node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node] for node in nodes)
    parts = (part for nodes in lists for part in nodes if isinstance(part, ast.Constant))
    return [part.value for part in parts if isinstance(part.value, str)]
