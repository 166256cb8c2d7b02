"""Loading a function from a file that imports from its own folder."""

import json
import sys
import sysconfig
from pathlib import Path

from headcount.bench.isolated.user_code import import_folders, is_below, load


def load_with_folders(spec):
    """Return the function with its folders on sys.path, as in the process of user code."""
    sys.path[:0] = import_folders(spec)
    return load(spec)


def test_file_imports_from_its_folder(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "their_sizes.py").write_text("WIDTH = 5")
    (tmp_path / "their_entry.py").write_text("from their_sizes import WIDTH\ndef width(): return WIDTH\n")
    package = tmp_path / "their_other_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "entry.py").write_text("import their_sizes\ndef width(): return their_sizes.WIDTH\n")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_with_folders(f"{tmp_path}/their_entry.py:width")() == 5
    assert load_with_folders(f"{package}/entry.py:width")() == 5


def test_installed_code_is_not_below_root(tmp_path):
    """A repository may contain its virtual environment, whose packages are not the user's code."""
    root = str(Path(sys.prefix).anchor)
    assert is_below(tmp_path / "model.py", root)
    installed = Path(sysconfig.get_path("purelib")) / "net.py"
    assert not any(is_below(file, root) for file in (installed, Path(json.__file__)))
