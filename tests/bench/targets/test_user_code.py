"""Loading a function from a file that imports from its own folder."""

import json
import sys
import sysconfig
from pathlib import Path

from headcount.bench.targets.user_code import import_folders, is_below, load


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
