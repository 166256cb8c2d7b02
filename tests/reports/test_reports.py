"""Generated blocks are made from results, and a stale one is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from headcount.reports import __main__ as command
from headcount.reports import blocks, document, readme, results

ROOT = Path(__file__).parents[2]


def test_a_block_is_replaced_and_the_rest_stays():
    text = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n<!-- generated: y -->\n<!-- end: y -->\n"
    filled = blocks.fill(text, {"x": lambda: "new\n", "y": lambda: "also"})
    assert filled == text.replace("old", "new").replace("y -->\n<", "y -->\nalso\n<")
    assert blocks.fill(filled, {"x": lambda: "new", "y": lambda: "also"}) == filled


@pytest.mark.parametrize(
    "text, message",
    [
        ("<!-- generated: z -->\n<!-- end: z -->", "no one makes the block 'z'; there are x"),
        ("<!-- generated: x -->\nopen", "the block 'x' has no end"),
    ],
)
def test_a_block_that_cannot_be_filled_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        blocks.fill(text, {"x": lambda: "new"})


@pytest.fixture
def readme_in(tmp_path, monkeypatch):
    path = tmp_path / "README.md"
    path.write_text("<!-- generated: x -->\nold\n<!-- end: x -->\n")
    (tmp_path / "CONTRIBUTING.md").write_text("no block")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "GENERATED", tmp_path / "generated")
    monkeypatch.setattr(document, "text", lambda: "a report")
    monkeypatch.setattr(readme, "blocks", lambda: {"x": lambda: "new"})
    return path


def test_check_names_a_stale_file_and_writes_nothing(readme_in, capsys):
    before = readme_in.read_text()
    assert command.main(["--check"]) == 1
    err = capsys.readouterr().err
    assert "stale: README.md" in err and "stale: generated/report.md" in err
    assert readme_in.read_text() == before and not (readme_in.parent / "generated").exists()


def test_writing_makes_the_check_pass(readme_in, capsys):
    assert command.main([]) == 0
    assert "new" in readme_in.read_text()
    assert command.main(["--check"]) == 0


def test_a_failing_command_is_one_line(capsys, monkeypatch):
    def fail():
        results.command("bench.macs", "--preset", "nothing")

    monkeypatch.setattr(command, "files", fail)
    assert command.main([]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "exited 2" in err and "unknown preset 'nothing'" in err


def test_every_generated_file_is_fresh():
    done = subprocess.run([sys.executable, "-m", "reports", "--check"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
