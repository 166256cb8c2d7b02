"""The history of a lock in git and its badge, without counting."""

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest

from headcount.bench.counting.result import Count, Parameter
from headcount.bench.lock.__main__ import main
from headcount.bench.output.figure import drawing
from headcount.bench.snapshot import file
from headcount.formulas.ledger import Entry, Ledger


def dense(layers, rows=5, name="model.py:make"):
    """Return the count of ``layers`` linear layers of width 7 on ``rows`` rows."""
    terms = [Entry(str(number), "linear", {"m": rows, "i": 7, "j": 7}) for number in range(layers)]
    parameters = [Parameter(f"{number}.weight", (7, 7)) for number in range(layers)]
    return Count(name, Ledger(tuple(terms)), parameters=tuple(parameters), versions={"torch": "2.13.0"})


def commit(subject):
    subprocess.run(["git", "add", "-A"], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "commit", "-qm", subject], check=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository whose commits lock 2 layers, change a README, lock 3 layers, and break the lock."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-qb", "main"], check=True)
    for layers in (2, 3):
        (tmp_path / "macs.lock").write_text(file.text(dense(layers)))
        commit(f"lock {layers} layers")
        (tmp_path / "README").write_text(str(layers))
        commit("write a README")
    (tmp_path / "macs.lock").write_text("{}")
    commit("break the lock")
    return tmp_path


def test_history_of_several_targets(repository, capsys):
    """A second target is added, changed and removed; then there is a third in place of the first."""
    steps = [(dense(3), dense(1, name="b")), (dense(3), dense(2, name="b")), (dense(3),), (dense(3, name="c"),)]
    for number, snapshots in enumerate(steps):
        (repository / "macs.lock").write_text(file.text(*snapshots))
        commit(f"step {number}")
    assert main(["--history", "main~4..main", "macs.lock", "--format", "json", "--plot", "costs.svg"]) == 0
    data = json.loads(capsys.readouterr().out)
    found = [(row["subject"], row["target"], row["macs"], row["macs_change"]) for row in data["tables"][0]["rows"]]
    assert found == [
        ("step 0", "model.py:make", 735, None),
        ("step 0", "b", 245, None),
        ("step 1", "model.py:make", 735, 0),
        ("step 1", "b", 490, 245),
        ("step 2", "model.py:make", 735, 0),
        ("step 3", "c", 735, None),
    ]
    b = "b 245 -> 490 (+245) MACs (1 added), 49 -> 98 (+49) parameters (1 added)"
    same = "735 MACs (none changed), 147 parameters (none changed)"
    assert data["result"] == f"4 commits changed macs.lock: model.py:make {same}; {b}; c {same}."


def test_history_has_commits_that_changed_the_lock(repository, capsys):
    assert main(["--history", "main", "macs.lock", "--format", "json", "--plot", "costs.svg"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    found = [
        (row["subject"], row["macs"], row["macs_change"], row["params"], row["params_change"]) for row in table["rows"]
    ]
    assert found == [
        ("lock 2 layers", 2 * 5 * 7 * 7, None, 2 * 49, None),
        ("lock 3 layers", 3 * 5 * 7 * 7, 5 * 7 * 7, 3 * 49, 49),
        ("break the lock", None, None, None, None),
    ]
    assert ET.parse(repository / "costs.svg").getroot().tag.endswith("svg")
    assert main(["--history", "main~1..main", "macs.lock"]) == 0
    assert "neither a lock nor" in capsys.readouterr().out


def test_plot_has_room_above_the_points(repository, monkeypatch):
    pyplot, figures = drawing(), []
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        assert main(["--history", "main", "macs.lock", "--plot", "costs.svg"]) == 0
    pyplot.close(figures[0])
    for axes, largest in zip(figures[0].axes, (3 * 5 * 7 * 7, 3 * 49), strict=True):
        bottom, top = axes.get_ylim()
        assert bottom == 0 and 1.05 * largest < top < 1.2 * largest


def test_first_commit_is_compared_with_the_lock_before_it(repository, capsys):
    (repository / "macs.lock").write_text(file.text(dense(3)))
    commit("mend the lock")
    (repository / "macs.lock").write_text(file.text(dense(4)))
    commit("lock 4 layers")
    assert main(["--history", "main~1..main", "macs.lock", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (row,) = data["tables"][0]["rows"]
    assert (row["macs"], row["macs_change"], row["params_change"]) == (4 * 5 * 7 * 7, 5 * 7 * 7, 49)
    assert data["result"].startswith("1 commit changed macs.lock: 735 -> 980 (+245) MACs (1 added)")


def test_history_reads_any_subject_and_any_bytes(repository, capsys):
    (repository / "macs.lock").write_bytes(file.text(dense(2)).encode().replace(b"model.py", b"model\xff.py"))
    commit("a\u2028b")
    assert main(["--history", "main~1..main", "macs.lock", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [(row["subject"], row["macs"]) for row in table["rows"]] == [("a\u2028b", None)]
    assert "not JSON" in table["rows"][0]["notes"][0]


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
    def texts(*snapshots):
        (repository / "macs.lock").write_text(file.text(*snapshots))
        assert main(["--badge", "macs.svg", "macs.lock"]) == 0
        return [text.text for text in ET.parse("macs.svg").getroot().iter() if text.tag.endswith(("text", "title"))]

    # 3 x 5 x 7 x 7 and 3 x 7 x 7
    assert texts(dense(3)) == ["model.py:make: 735 MACs, 147 parameters", "cost", "735 MACs, 147 params"]
    # 20,406 x 7 x 7 = 999,894, which three digits round to the next unit
    title = "model.py:make: 735 MACs, 147 parameters; <b>: 999,894 MACs, 49 parameters"
    text = "model.py:make: 735 MACs, 147 params · <b>: 1,000k MACs, 49 params"
    assert texts(dense(3), dense(1, 20406, "<b>")) == [title, "cost", text]
    # a name with control characters, which no XML may hold
    assert texts(dense(3, name="a\nb\x1b"))[0] == r"a\nb\x1b: 735 MACs, 147 parameters"
