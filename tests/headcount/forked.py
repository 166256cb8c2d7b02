"""Run a command line in a fork: its exit code, and what is wrong with how it ended."""

import contextlib
import io
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from headcount.bench import records
from headcount.bench.table import shown

SECONDS, PATIENCE, MEMORY = 5.0, 20, 6 * 2**30
"""Of a processor, and how many times that of the clock: a busy machine makes no line hang. Bytes of addresses."""
CODES = (0, 1, 2, 3)
"""Fine, something disagrees, wrong usage, something is missing."""
TRACEBACK, HANG = "a traceback", "still ran after"

MODEL = """
import torch

def make(n=7): return torch.nn.Linear(11, 13, bias=False), (torch.zeros(n, 11),)
"""
ROUTED = ("mlm-moa-8K8E128D", "--set", "d_model=6", "d_ff=5", "num_layers=1", "vocab_size=11", "head_dim=4")
"""The preset of the model that lines of routing name, and what of it is changed."""


def furnish(folder: Path) -> None:
    """Put them into a folder that is made for them."""
    (folder / "folder").mkdir(parents=True)
    (folder / "loop").symlink_to("loop")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "nested.json").write_text("[" * 20000)
    (folder / "half.jsonl").write_text('{"kind": "latency"}\n{"kind": \n')
    (folder / "whole.jsonl").write_bytes(_records())
    (folder / "ids.txt").write_text("1 2 3\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "log.jsonl").write_text('{"step": 1, "tokens_per_expert": {"x": [1, 2]}}\n')
    (folder / "surrogate.txt").write_bytes(b"\xed\xa0\x80 1 2\n")


def checkpoint() -> bytes:
    """The weights of the model that lines of routing name."""
    import torch

    from headcount.models.build import build
    from headcount.models.configs import presets

    name, _, *fields = ROUTED
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.save(build(presets.preset(name, presets.parse_overrides(name, fields))).state_dict(), file)
    return file.getvalue()


@cache
def _records() -> bytes:
    """Some records that came with this software."""
    path = min(records.shipped().glob("*/*.jsonl"))
    return b"".join(path.read_bytes().splitlines(keepends=True)[:8])


def contents(folder: Path) -> set[str]:
    """The names of everything in a folder, but for what Python itself keeps beside a module of somebody's."""
    names = (path.relative_to(folder) for path in folder.rglob("*"))
    return {name.as_posix() for name in names if "__pycache__" not in name.parts}


Command = Callable[[], int]


def outcome(command: Command, beside: Mapping[str, bytes] | None = None) -> tuple[int, str]:
    """The exit code of ``command`` in a fork of this process, and what is wrong with how it ended; empty where it
    held. Files ``beside`` it are in its folder."""
    (found,) = outcomes([command], beside)
    return found


def outcomes(commands: Sequence[Command], beside: Mapping[str, bytes] | None = None) -> list[tuple[int, str]]:
    """The outcome of each, one after the other in one fork: where that does not come through, in a fork of its own
    each, which says whose fault it is. A fork of a process that has torch costs more than most wrong lines."""
    with tempfile.TemporaryDirectory() as name:
        places = [Path(name, str(number)) for number in range(len(commands))]
        for place in places:
            furnish(place / "work")
            for file, data in (beside or {}).items():
                (place / "work" / file).write_bytes(data)
        before = contents(places[0] / "work")
        pid = os.fork()
        if not pid:
            _child(commands, places)
        status = _waited(pid, len(commands))
        if len(commands) == 1 or all((place / "code").exists() for place in places):
            return [_judged(place, status, before) for place in places]
    return [outcome(command, beside) for command in commands]


def _judged(place: Path, status: int | None, before: set[str]) -> tuple[int, str]:
    """What is wrong with a command that ran in ``place``, in a process that ended with ``status``."""
    if status is None:
        return -1, f"{HANG} {SECONDS:.0f} s"
    ended = place / "code"
    code = int(ended.read_text()) if ended.exists() else os.waitstatus_to_exitcode(status)
    if hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU:
        return code, f"{HANG} {SECONDS:.0f} s"
    streams = (place / "out", place / "err")
    out, err = (path.read_text("utf-8", "replace") if path.exists() else "" for path in streams)
    left, said = contents(place / "work"), err.strip().splitlines()
    problems = {
        f"exit code {code}": code not in CODES,
        f"{TRACEBACK}: {said[-1] if said else ''}": "Traceback" in err,
        f"{len(said)} lines on stderr: {said[0] if said else ''}": code != 0 and len(said) > 2,
        "stderr holds what a terminal obeys": shown(err) != err,
        "printed though it failed": code > 1 and bool(out),
        f"left {', '.join(sorted(left - before))}": code > 1 and left != before,
    }
    return code, "; ".join(text for text, so in problems.items() if so)


def _child(commands: Sequence[Command], places: Sequence[Path]) -> None:
    """Run ``commands``, each in its place, and note the exit code there; ends the process."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        for command, place in zip(commands, places, strict=True):
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + math.ceil(SECONDS), most))
            os.chdir(place / "work")
            for descriptor, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), descriptor)
            sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
            code = _ended(command)
            (place / "code").write_text(str(code))
    finally:
        os._exit(0)


def _ended(command: Command) -> int:
    """The exit code that Python would end with."""
    code = 70
    try:
        code = command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        # a stream that cannot be flushed must not keep the fork alive
        with contextlib.suppress(Exception):
            stream.flush()
    return code


def _waited(pid: int, commands: int) -> int | None:
    """The status of a child that ends in time; None for one that does not, which is ended."""
    until = time.monotonic() + PATIENCE * SECONDS * commands
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None
