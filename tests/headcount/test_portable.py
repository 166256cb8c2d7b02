"""Modules import on systems without Unix modules, and a checkout works without symbolic links."""

import ast
import shutil
import subprocess
import sys

import pytest

import headcount

ROOT = headcount.CHECKOUT
PACKAGES = ("headcount", "bench", "formulas", "models", "reports")
MISSING = ("resource", "fcntl", "termios", "pwd", "grp")
"""Modules that Windows lacks."""
MODULES = sorted(
    ".".join(("headcount", *path.relative_to(ROOT).with_suffix("").parts)).replace("headcount.headcount", "headcount")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
IMPORT_ALL = """
import importlib, sys
from importlib.util import find_spec
# these choose by system themselves
import numpy, pandas, psutil, pytest, tempfile, torch, torch._dynamo, subprocess
import fvcore.nn, ptflops, sympy, tabulate, tqdm
if find_spec("matplotlib"):
    import matplotlib.pyplot
for name in {missing!r}:
    sys.modules[name] = None
without = []
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        without.append((name, error.name))
print(without)
"""
OPTIONAL = {"triton", "deepspeed", "torchvision", "transformers", "pynvml", "shtab", "latex2mathml", "mkdocs"}


def test_modules_import_without_unix_modules():
    program = IMPORT_ALL.format(missing=MISSING, modules=MODULES)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    without = ast.literal_eval(done.stdout.splitlines()[-1])
    assert {(name, missing) for name, missing in without if missing not in OPTIONAL} == set()


@pytest.mark.parametrize("link", ["symbolic link", "plain file", "missing"])
def test_checkout_without_symbolic_links(link, tmp_path):
    """Git writes links as plain files where a system has none."""
    for package in PACKAGES[1:]:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "generated"))
    (tmp_path / "headcount").mkdir()
    for path in (ROOT / "headcount").glob("*.py"):
        shutil.copy(path, tmp_path / "headcount")
    for package in PACKAGES[1:] if link != "missing" else ():
        path = tmp_path / "headcount" / package
        path.symlink_to(f"../{package}") if link == "symbolic link" else path.write_text(f"../{package}")
    program = "import headcount.bench.cli as cli, headcount; print(headcount.CHECKOUT, cli.__file__)"
    for argv, expected in {
        ("-S", "-m", "bench.macs", "--counter", "closed-form"): "24 printed MACs: 15 reproduced",
        ("-S", "-c", program): f"{tmp_path} {tmp_path}/bench/cli.py",
    }.items():
        done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(expected), done.stderr
