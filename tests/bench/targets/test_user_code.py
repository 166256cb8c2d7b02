"""Loading a function from a file that imports from its own folder."""

import json
import sys
import sysconfig
from argparse import Namespace
from pathlib import Path

import pytest

from headcount.bench.targets.target import parse_target
from headcount.bench.targets.user_code import build_target, import_folders, is_below, load


def test_file_of_a_package_imports_from_the_folder_of_the_package(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "their_sizes.py").write_text("WIDTH = 5")
    package = tmp_path / "their_other_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "entry.py").write_text("import their_sizes\ndef width(): return their_sizes.WIDTH\n")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    spec = f"{package}/entry.py:width"
    sys.path[:0] = import_folders(spec)
    assert load(spec)() == 5


def test_installed_code_is_not_below_root(tmp_path):
    """A repository may contain its virtual environment, whose packages are not the user's code."""
    root = str(Path(sys.prefix).anchor)
    assert is_below(tmp_path / "model.py", root)
    installed = Path(sysconfig.get_path("purelib")) / "net.py"
    assert not any(is_below(file, root) for file in (installed, Path(json.__file__)))


@pytest.mark.parametrize("names", [("T", "B"), ("seq_len", "batch_size")])
def test_lengths_are_the_keywords_of_a_function(names, tmp_path):
    """Options beat the words of one target, as of a preset, and the names of lengths and their letters are one."""
    length, batch = names
    made = f"def make({batch}=2, {length}=3): return nn.Linear(5, 7), (torch.zeros({batch}, {length}, 5),)\n"
    (tmp_path / "sized.py").write_text(f"import torch\nfrom torch import nn\n{made}")
    args = Namespace(set=[], input=[], seq_len=11, batch_size=13)
    built = build_target(parse_target(f"{tmp_path}/sized.py:make,{length}=4", args))
    assert built.args[0].shape == (13, 11, 5)
