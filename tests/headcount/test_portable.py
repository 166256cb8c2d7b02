"""The product runs on systems without Unix modules, and a checkout works without symbolic links."""

import ast
import shutil
import subprocess
import sys

import pytest

from tests.headcount.sources import PACKAGES, ROOT, imported_names, modules, tree

MISSING = {"resource", "fcntl", "termios", "pwd", "grp"}
"""Modules that Windows lacks."""


def test_unix_modules_are_imported_in_try():
    for path in modules(*PACKAGES):
        tries = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Try)]
        guarded = {node for one in tries for node in ast.walk(one)}
        unguarded = [
            node.lineno for node in ast.walk(tree(path)) if imported_names(node) & MISSING and node not in guarded
        ]
        assert unguarded == [], path


@pytest.mark.parametrize("link", ["plain file", "missing"])
def test_checkout_without_symbolic_links(link, tmp_path):
    """Git writes links as plain files where a system has none."""
    for package in PACKAGES[1:]:
        (tmp_path / package).symlink_to(ROOT / package)
    (tmp_path / "headcount").mkdir()
    for path in (ROOT / "headcount").glob("*.py"):
        shutil.copy(path, tmp_path / "headcount")
    for package in PACKAGES[1:] if link == "plain file" else ():
        (tmp_path / "headcount" / package).write_text(f"../{package}")
    argv = [sys.executable, "-S", "-m", "bench.macs", "--counter", "closed-form"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("24 printed rows: 15 reproduced")
