"""Every package has a module for each variant, and no other code branches on a variant's name."""

import ast

import pytest

from headcount.models.configs.registry import ATTENTIONS, MODELS, VARIANTS
from tests.headcount.sources import ROOT, modules, tree

NAMES = {*VARIANTS, *MODELS}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_has_file_in_every_package(variant):
    packages = ["formulas", "models/configs", "bench/variants"] + ["models"] * bool(ATTENTIONS[variant].module)
    assert [package for package in packages if not (ROOT / package / f"{variant}.py").is_file()] == []


def test_no_branch_on_variant_name():
    paths = [path for path in modules("bench", "reports") if not path.startswith("bench/variants/")]
    found = {path: sorted({n.lineno for n in ast.walk(tree(path)) if names_a_variant(n)}) for path in paths}
    assert len(paths) > 100 and {path: lines for path, lines in found.items() if lines} == {}


def names_a_variant(node):
    """Return whether a node compares with a variant's name: ==, in, startswith, or a case of match."""
    if isinstance(node, ast.Compare):
        # the role of a dense layer in a record is "mha", and torch has an operator "convolution"
        left = ast.unparse(node.left)
        if left == "event.name" or left.endswith("['role']"):
            return False
        return not NAMES.isdisjoint(texts(node.left, *node.comparators))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "removeprefix"):
        # presets such as moh-32 begin with a variant's name
        return any(text.partition("-")[0] in NAMES for text in texts(*node.args))
    return isinstance(node, ast.MatchValue) and not NAMES.isdisjoint(texts(node.value))


def texts(*nodes):
    """Return the strings among some nodes and the elements of their lists."""
    parts = [part for node in nodes for part in getattr(node, "elts", [node]) if isinstance(part, ast.Constant)]
    return [part.value for part in parts if isinstance(part.value, str)]
