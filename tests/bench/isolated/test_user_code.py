"""Find a user's function; an error names what cannot be used."""

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from headcount.bench.isolated.user_code import UserCodeError, build, import_folders, is_below, load

FACTORY = """
import torch
from torch import nn

Linear = nn.Linear
X = torch.ones(3, 5)

def _hidden(): pass
def good(rows, width=5): return nn.Linear(width, 7), (torch.ones(rows, width),)
def no_module(): return "net", ()
def no_inputs(): return nn.Linear(5, 7), X
def three(): return [nn.Linear(5, 7), X, 3]
def rows(): return nn.Linear(5, 7)(torch.ones(3, 5, 1)), X
def gpu(): raise RuntimeError("Found no NVIDIA driver on your system.")
def package(): import a_package_that_nobody_has
class Hostile(Exception):
    def __str__(self): raise ValueError
def hostile(): raise Hostile
def deep(): return deep()
def leaves(): raise SystemExit(3)
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "their_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def loaded(spec):
    """Load a function as the process of user code does."""
    sys.path[:0] = import_folders(spec)
    return load(spec)


def built(factory, function):
    spec = f"their_factory.py:{function}"
    return build(spec, loaded(spec), {})


def test_file_imports_from_its_folder(factory, tmp_path_factory, monkeypatch):
    (factory / "their_sizes.py").write_text("WIDTH = 5")
    (factory / "their_entry.py").write_text("from their_sizes import WIDTH\ndef width(): return WIDTH\n")
    package = factory / "their_other_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "entry.py").write_text("import their_sizes\ndef width(): return their_sizes.WIDTH\n")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert loaded(f"{factory}/their_entry.py:width")() == 5
    assert loaded(f"{package}/entry.py:width")() == 5


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("three", "three must return (module, inputs)"),
        ("no_module", "no_module must return (module, inputs)"),
        ("no_inputs", "no_inputs must return (module, inputs)"),
        ("gpu", "gpu needs a GPU"),
        ("package", "package needs the package 'a_package_that_nobody_has'"),
        ("leaves", "leaves raised SystemExit: 3"),
        ("hostile", "hostile raised Hostile: "),
        ("deep", "deep raised RecursionError: "),
        ("good", "good takes rows, width: "),
        ("absent", "their_factory.py has no function absent; it has good, no_module"),
    ],
)
def test_user_error_is_one_line(factory, function, words):
    with pytest.raises(UserCodeError) as raised:
        built(factory, function)
    assert str(raised.value).startswith(words) and "\n" not in str(raised.value)


def test_traceback_shows_user_lines(factory):
    """Between the two are torch's calls of modules."""
    with pytest.raises(UserCodeError) as raised:
        built(factory, "rows")
    frames = [line.strip() for line in raised.value.trace.splitlines() if line.lstrip().startswith("File")]
    assert len(frames) == 2
    assert "their_factory.py" in frames[0] and frames[0].endswith("in rows")
    assert "linear.py" in frames[1] and frames[1].endswith("in forward")


def test_installed_code_is_not_the_users(tmp_path):
    """Of a repository that holds its environment, packages and Python itself are not trusted."""
    root = str(Path(sys.prefix).anchor)
    assert is_below(tmp_path / "model.py", root)
    installed = Path(sysconfig.get_path("purelib")) / "net.py"
    assert not any(is_below(file, root) for file in (installed, Path(json.__file__)))
