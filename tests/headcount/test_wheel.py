"""Contents of the wheel, and an installed copy in projects with modules of the same names."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
PACKAGES = ("headcount", "bench", "formulas", "models", "reports")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")

OWN = {"folders": "{}/__init__.py", "modules": "{}.py"}
"""Folders or modules of a user's project that are named as the packages."""
THEIRS = ("bench", "formulas", "models", "reports")
MODEL = f"""
import torch
import {", ".join(THEIRS)}

assert [package.MINE for package in ({", ".join(THEIRS)})] == [23] * 4


def make():
    return torch.nn.Linear(models.MINE, 29, bias=False), (torch.zeros(31, bench.MINE),)
"""
LIBRARY = """
import headcount as hc
from model import make, models

def test_library_and_fixture(macs_lock):
    assert models.MINE == 23 and hc.CHECKOUT is None
    assert hc.build(hc.preset("moa-8K8E128D"), device="meta").encoder.layers
    module, inputs = make()
    hc.assert_macs(module, *inputs, expected=31 * 23 * 29)
    assert macs_lock(module, *inputs).macs == 31 * 23 * 29
"""


def files(folder):
    """Return the paths of the files in ``folder``, without hidden ones and caches."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if "__pycache__" not in path.parts and not path.name.startswith(".")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of this checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out))
    subprocess.run([*PIP, "wheel", *options, str(source)], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed_copy(wheel, tmp_path_factory):
    """Install the wheel into a folder of another git repository."""
    target = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-index", "--target", str(target))
    subprocess.run([*PIP, "install", *options, str(wheel)], check=True)
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    for words in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "theirs")):
        subprocess.run(["git", *words], cwd=target, check=True)
    return target


@pytest.fixture(scope="module")
def commands(installed_copy, tmp_path_factory):
    """Start the commands that import torch at once, and yield the processes by kind of project."""
    env = {**os.environ, "PYTHONPATH": str(installed_copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = str(installed_copy / "bin" / "headcount")
    before = contents(installed_copy)
    processes = {}
    for name, path in OWN.items():
        project = tmp_path_factory.mktemp("project")
        for package in THEIRS:
            (project / path.format(package)).parent.mkdir(exist_ok=True)
            (project / path.format(package)).write_text("MINE = 23\n")
        (project / "model.py").write_text(MODEL)
        (project / "test_use.py").write_text(LIBRARY)
        count = (command, "count", "model.py:make")
        test = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--macs-lock-update")
        argv, pipes = count if name == "folders" else test, {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes[name] = subprocess.Popen(argv, cwd=project, env=env, text=True, **pipes)
    yield processes
    for process in processes.values():
        process.kill()
        process.communicate()
    assert contents(installed_copy) == before


def contents(folder):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files(folder)}


def test_wheel_contents(wheel):
    """The wheel has every module and every file that is read at run time, and the records without their report."""
    expected = set()
    for package in PACKAGES:
        inside = "headcount" if package == "headcount" else f"headcount/{package}"
        own = files(ROOT / package)
        if package == "reports":
            own = {name for name in own if name.endswith(".jsonl")}
        expected |= {f"{inside}/{name}" for name in own}
    contained = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert contained == expected
    assert any(name.endswith(".jsonl") for name in contained) and any(name.endswith(".toml") for name in contained)
    assert any(name.endswith("timm_counts.csv") for name in contained)


@pytest.mark.parametrize("name, words", [("folders", f"{23 * 29 * 31:,}"), ("modules", "1 passed")])
def test_project_with_the_same_names(name, words, commands):
    out, err = commands[name].communicate(timeout=120)
    assert commands[name].returncode == 0, err
    assert words in out


def test_installed_copy_has_records_and_writes_elsewhere(installed_copy, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(installed_copy), "XDG_DATA_HOME": str(tmp_path)}
    program = "from headcount.bench.records import *; print(len([*shipped().rglob('*.jsonl')]), writable())"
    command = [sys.executable, "-B", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    number = len(list((ROOT / "reports").rglob("*.jsonl")))
    assert done.stdout == f"{number} {tmp_path / 'headcount' / 'records'}\n"
