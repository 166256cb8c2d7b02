"""A lock's history by commit, and its badge: read from git and from the file, and nothing is run."""

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest

from headcount.bench.lock.__main__ import main

DENSE = """
from torch import nn, zeros
def make(): return nn.Sequential(*(nn.Linear(7, 7) for _ in range({}))), (zeros(5, 7),)
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose commits lock 2 layers, change a README, lock 3 layers, and break the lock."""
    monkeypatch.chdir(tmp_path)

    def commit(subject):
        subprocess.run(["git", "add", "-A"], check=True)
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, "commit", "-qm", subject], check=True)

    subprocess.run(["git", "init", "-qb", "main"], check=True)
    for layers in (2, 3):
        (tmp_path / "model.py").write_text(DENSE.format(layers))
        assert main(["model.py:make", "-o", "macs.lock"]) == 0
        commit(f"lock {layers} layers")
        (tmp_path / "README").write_text(str(layers))
        commit("write a README")
    (tmp_path / "macs.lock").write_text("{}")
    commit("break the lock")
    (tmp_path / "model.py").unlink()
    return tmp_path


def test_history_has_commits_that_changed_the_lock(repository, capsys):
    assert main(["--history", "main", "macs.lock", "--format", "json", "--plot", "costs.svg"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    found = [
        (row["subject"], row["macs"], row["macs_change"], row["params"], row["params_change"]) for row in table["rows"]
    ]
    assert found == [
        ("lock 2 layers", 2 * 5 * 7 * 7, None, 2 * 56, None),
        ("lock 3 layers", 3 * 5 * 7 * 7, 5 * 7 * 7, 3 * 56, 56),
        ("break the lock", None, None, None, None),
    ]
    assert ET.parse(repository / "costs.svg").getroot().tag.endswith("svg")
    assert main(["--history", "main~1..main", "macs.lock"]) == 0
    assert "neither a lock nor" in capsys.readouterr().out


@pytest.mark.parametrize("argv, words", [
    (["--history", "main"], ["macs.lock"]),
    (["--history", "nobody..main", "macs.lock"], ["nobody..main"]),
    (["--history", "main", "other.lock"], ["other.lock", "no commit"]),
    (["--history", "main", "macs.lock", "--plot", "costs.gif"], [".svg", "'costs.gif'"]),
    (["--plot", "costs.svg", "model.py:make"], ["--history"]),
    (["--badge", "macs.png", "macs.lock"], [".svg"]),
    (["--badge", "macs.svg", "macs.lock"], ["macs.lock", "neither a lock"]),
], ids=" ".join)  # fmt: skip
def test_wrong_history_or_badge_is_one_line(argv, words, repository, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in words)
    assert not {"costs.svg", "macs.svg"} & {path.name for path in repository.iterdir()}


def test_badge_has_the_totals(repository):
    subprocess.run(["git", "checkout", "-q", "main~1", "--", "macs.lock"], check=True)
    assert main(["--badge", "macs.svg", "macs.lock"]) == 0
    texts = [text.text for text in ET.parse("macs.svg").getroot().iter() if text.tag.endswith(("text", "title"))]
    # 3 x 5 x 7 x 7 and 3 x 56
    assert texts == ["model.py:make: 735 MACs, 168 parameters", "cost", "735 MACs, 168 params"]
