"""Faults: what is done to commands, and what must be true afterwards.

A test is one fault, by its mark: ``fault(what is done, what must hold)``. Those that are ``dear`` start torch and run
with ``make faults`` alone, which stores what was tried and what held for the report.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headcount

MODEL = """
import time
import torch

def make(n=7): return torch.nn.Linear(11, 13, bias=False), (torch.zeros(n, 11),)

def hangs(n=7): time.sleep(600)
"""
SMALL = ("d_model=6", "d_ff=5", "num_layers=1", "vocab_size=11", "num_experts=3", "top_k=2", "head_dim=4")


def pytest_collection_modifyitems(config, items):
    if not config.option.markexpr:
        dear = [item for item in items if item.get_closest_marker("dear")]
        config.hook.pytest_deselected(items=dear)
        items[:] = [item for item in items if item not in dear]


def choose(*cheap, dear=()):
    """Commands to parametrize a test with, the dear ones marked."""
    return pytest.mark.parametrize("command", [*cheap, *(pytest.param(name, marks=pytest.mark.dear) for name in dear)])


COMMANDS = {
    "macs": "macs --table moa-table3 --counter closed-form",
    "budget": "budget --macs 700M --limit 3",
    "report": "report --only notation --out pages",
    "macs --counter": "macs --preset transformer-base --counter torch",
    "macs --module": "macs --module model.py:make --counter torch",
    "lock": "lock --module model.py:make",
    "derive": "derive --preset moa-8K8E128D --vars T",
    "derive --module": "derive --module model.py:make --vars n",
    "latency": "latency --layer mha-base --arm reference --seq-len 10 --tokens 10 --blocks 2 --pass forward",
    "latency --estimate": "latency --estimate --layer mha-base --seq-len 10",
    "latency compare": "latency compare whole.jsonl whole.jsonl",
    "latency gates": "latency gates --layer mha-base",
    "routing": f"routing --checkpoint model.pt --tokens ids.txt --preset mlm-moa-8K8E128D --set {' '.join(SMALL)}",
}
CHEAP = ("macs", "budget", "report")
DEAR = tuple(name for name in COMMANDS if name not in CHEAP)
SAY = ("macs", "budget")
"""Cheap ones that print a table."""


WRITING = {
    "macs -o": "macs --table moa-table3 --counter closed-form -o disk/old",
    "macs --format json -o": "macs --table moa-table3 --counter closed-form --format json -o disk/old",
    "macs -o DIR/": "macs --table moa-table3 --counter closed-form -o disk/",
    "budget -o": "budget --macs 700M -o disk/old",
    "report --out": "report --only notation method --out disk",
    "lock -o": "lock --module model.py:make -o disk/old",
    "derive -o": "derive --preset moa-8K8E128D --vars T -o disk/old",
    "latency --json": "latency --layer mha-base --seq-len 10 --tokens 10 --blocks 1 --pass forward --json disk/old",
    "latency --out-dir": "latency --layer mha-base --seq-len 10 --tokens 10 --blocks 1 --pass forward --out-dir disk",
    "latency gates --json": "latency gates --layer mha-base --json disk/old",
    "budget --plot": "budget --macs 700M --plot disk/old.svg",
    "routing --plot": f"{COMMANDS['routing']} --plot disk/old.svg",
}
CHEAP_WRITING = ("macs -o", "macs --format json -o", "macs -o DIR/", "budget -o", "report --out")
OLD = "kept\n"
"""What ``disk/old`` and ``disk/old.svg`` hold before."""


def program(command):
    """The name under which a command of COMMANDS speaks."""
    return " ".join(["headcount", *(word for word in command.split() if not word.startswith("-"))])


_SAID: dict[tuple, str] = {}
"""What commands print where nothing is done to them."""


class Place:
    """A folder with what commands read, in which they run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder / "work", folder / "tmp"
        for path in (self.folder, self.temporary):
            path.mkdir()
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "ids.txt").write_text("1 2 3 4\n5 6\n")
        records = min((headcount.CHECKOUT / "reports" / "records").glob("*/*.jsonl"))
        (self.folder / "whole.jsonl").write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:4]))

    def argv(self, command, *more):
        """The command line of a name of COMMANDS, or of words: a text of them, where none holds a space."""
        words = COMMANDS.get(command, command).split() if isinstance(command, str) else list(command)
        if words[0] == "routing" and not (self.folder / "model.pt").exists():
            self._checkpoint()
        return [sys.executable, "-m", "headcount", *words, *more]

    def _checkpoint(self):
        import torch

        from headcount.models.build import build
        from headcount.models.configs import presets

        config = presets.preset("mlm-moa-8K8E128D", presets.parse_overrides("mlm-moa-8K8E128D", SMALL))
        torch.save(build(config).state_dict(), self.folder / "model.pt")

    def environment(self, **changed):
        """Ours, with this checkout first; None takes a variable away."""
        found = {**os.environ, "PYTHONPATH": str(headcount.CHECKOUT), "TMPDIR": str(self.temporary), **changed}
        return {name: value for name, value in found.items() if value is not None}

    def run(self, command, *more, env=None, **options):
        """The command, ended; what it says is text unless told otherwise."""
        options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 300, **options}
        return subprocess.run(
            self.argv(command, *more), cwd=self.folder, env=self.environment(**(env or {})), **options
        )

    def says(self, command, *more, env=None):
        """What the command prints where nothing is done to it, which is the same in every place: asked once."""
        asked = (command, *more, *(env or {}).items())
        if asked not in _SAID:
            _SAID[asked] = self.run(command, *more, env=env).stdout
        return _SAID[asked]

    def start(self, command, *more, env=None, **options):
        """Start the command in a session of its own."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        options = {**streams, "preexec_fn": ignoring_nothing, **options}
        options |= {"cwd": self.folder, "env": self.environment(**(env or {})), "start_new_session": True}
        return subprocess.Popen(self.argv(command, *more), **options)

    def left(self):
        """Temporary files: those that a system or torch keeps apart."""
        known = (
            "torchinductor",
            "matplotlib",
        )
        beside = [path.name for path in self.folder.rglob(".*.tmp")]
        return beside + [path.name for path in self.temporary.iterdir() if not path.name.startswith(known)]


def ignoring_nothing():
    """Signals do what they do: whatever runs in the background of a script ignores Ctrl-C, and under nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def in_session(leader):
    """The processes of a session that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.fixture
def place(tmp_path):
    """Where commands run."""
    return Place(tmp_path)


@pytest.fixture
def tries(record_property):
    """A function that says how often a fault was tried, where that is not once."""
    return lambda number: record_property("tries", number)
