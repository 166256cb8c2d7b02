"""Every imported package is declared in pyproject.toml, and every declared package is imported."""

import re
import sys
import tomllib
from functools import cache

from headcount.bench.counters import registry
from headcount.bench.counters.base import TORCH
from tests.headcount.sources import PACKAGES, ROOT, imported_names, modules, statements, tree

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORT_NAMES = {
    "nvidia-ml-py": "pynvml",
    "import-linter": "importlinter",
    "mkdocs-material": "mkdocs",
    "pytest-benchmark": "pytest_benchmark",
}
"""Import name of a distribution where both differ."""
OTHER_TOOLS = {"calflops", "thop", "torchinfo", "diffusers", "timm", "torchvision"}
"""Packages that ``make readings``, ``make libraries`` and ``make models`` install."""
CONFIGURED = {"mkdocstrings"}
"""Plugins that mkdocs.yml names."""
PROVIDED = {"pytest", "huggingface_hub"}
"""Packages that only a pytest plugin imports, or that come with transformers."""


def distribution(requirement):
    return re.match(r"[\w-]+", requirement)[0].lower()


@cache
def imports_of(path):
    """Return the top-level names that a module imports anywhere."""
    return set().union(*map(imported_names, statements(tree(path))))


def find_imports(*folders):
    """Return the names of other distributions that the modules of some folders import."""
    return set().union(*map(imports_of, modules(*folders))) - sys.stdlib_module_names - {"headcount", "tests"}


CORE = {distribution(requirement) for requirement in PROJECT["dependencies"]}
EXTRAS = {name: {distribution(r) for r in wanted} for name, wanted in PROJECT["optional-dependencies"].items()}
AT_RUN_TIME = CORE.union(*(EXTRAS[name] for name in ("completion", "docs", "gpu", "hf", "report", *registry.EXTRAS)))


def names_of(packages):
    return {IMPORT_NAMES.get(name, name) for name in packages}


def test_product_imports_are_declared():
    assert find_imports(*PACKAGES) - PROVIDED <= names_of(AT_RUN_TIME)
    plugins = PROJECT["entry-points"]["pytest11"].values()
    found = [path for path in modules("bench") if "pytest" in imports_of(path)]
    assert found == [f"{name.removeprefix('headcount.').replace('.', '/')}.py" for name in plugins]


def test_declared_packages_are_imported():
    assert names_of(AT_RUN_TIME) - find_imports(*PACKAGES) == CONFIGURED


def test_test_imports_are_declared():
    """Tests skip without the extras hf and docs."""
    assert find_imports("tests") - OTHER_TOOLS - PROVIDED <= names_of(AT_RUN_TIME | EXTRAS["test"])


def test_oldest_versions_are_lower_bounds():
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["report"]]
    needed += PROJECT["optional-dependencies"]["completion"]
    _, *oldest = (ROOT / "tests/oldest.txt").read_text().splitlines()
    assert oldest == sorted(re.sub(r">=([\w.]+).*", r"==\1", requirement) for requirement in needed)


def test_torch_versions_of_matrix_are_verified():
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["tox"]["env_list"]
    verified = {f"torch{version.replace('.', '')}" for version in TORCH.split(", ")}
    assert {name for name in names if name.startswith("torch")} < verified
