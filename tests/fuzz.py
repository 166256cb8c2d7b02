"""``python -m tests.fuzz [FAMILY …]``: command lines with something wrong in each, run one by one.

A line is made of a command's own options: the parser says which there are and what they take, and at least one value
is of HOSTILE. A line holds where it ends within its time with a documented exit code, says at most two lines on
stderr, prints nothing where it fails, leaves no file, and no traceback. Each line runs in a fork of a process that has
imported everything already, in an empty folder, with bounded memory. Where processes are not forked there is nothing
to run.
"""

import argparse
import contextlib
import importlib
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headcount.bench.cli import Parser, run
from headcount.bench.errors import UsageError

PROG = "python -m tests.fuzz"
SECONDS, MEMORY = 5.0, 6 * 2**30
CODES = (0, 1, 2, 3)
"""Fine, something disagrees, wrong usage, something is missing."""
LINES = 2000

GUARDS = {
    # counters and clocks are dear; what is wrong with a line shows before they begin
    "macs": ["--counter", "closed-form"],
    "latency": ["--estimate", "--device", "h200"],
    "derive": [],
    "budget": ["--limit", "3"],
    "routing": [],
}
"""A command -> what each of its lines ends with."""

DEAR = {"audit", "published", "example", "record", "help", "version", "quick"}
"""Options that run for long, or write into the checkout, whatever is wrong beside them."""

PRESETS = ("moa-8K8E128D", "transformer-base", "moh-llm-s-75", "mae-7")
SANE: dict[str, Sequence[str]] = {
    "FIELD=VALUE": ("d_model=26", "num_experts=5", "bias=True"),
    "NAME=VALUE": ("d_model=26", "d_ff=31"),
    "LETTER=N": ("s=2", "r=1"),
    "LETTER=LOW:HIGH[:STEP]": ("K=1:3", "E=1:5:2"),
    "NAME=START[:STEP]": ("T=3", "d_h=2:2"),
    "SPEC": ("K=1 E=2 D=3 T=5", "model.py:make"),
    "NAME,NAME": ("T,S", "T,d_h"),
    "NAME": PRESETS,
    "PRESET[,FIELD=VALUE]": ("transformer-base",),
    "BUDGET": ("1G", "200M", "64Ki"),
    "SHARE": ("2%", "0.1"),
    "T": ("7", "128"),
}
"""A metavar -> values that are right for some command."""

NUMBERS = (
    *("0", "-1", "-0", "1.5", "1e3", "nan", "inf", "-inf", "", " ", "²", "٣", "1_000", "0x10", "1e-999999999"),
    *("1e999999", "9" * 30, "9" * 5001, "1/0", "None", "True", "two"),
)
TEXTS = (
    *(
        "",
        " ",
        "-",
        "--",
        "=",
        ":",
        ",",
        "\n",
        "\t",
        "a\nb",
        "é",
        "\u202e",
        "\x1b[31m",
        "ŧ" * 300,
        "x" * 70000,
        "{}",
        "%s",
    ),
    *(
        "$HOME",
        "__import__('os').system('touch pwned')",
        "lambda",
        "class",
        "a=b=c",
        "=1",
        "a=",
        "K=",
        "K=1:2:0",
        "K=5:1",
    ),
    *("K=1:1000000000", "K=1,2,3,4 E=1:100000 D=1:100000", "T=0", "K=9 E=8 D=4", "K=x", "K", "num_layers=1000000000"),
    *("num_encoder_layers=999999999999", "d_model=" + "9" * 5001, "d_model=²", "form=none", "gates=1", "attention=moa"),
)
PATHS = (
    *("", ".", "..", "/", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "missing", "missing/below.json"),
    *("loop", "x" * 300, "folder", "binary", "nested.json", "half.jsonl", "surrogate.txt", "table.tex"),
)
HOSTILE = (*NUMBERS, *TEXTS, *PATHS)


@dataclass(frozen=True)
class Broken:
    """A line that did not hold, and why."""

    family: str
    argv: Sequence[str]
    why: str

    def text(self) -> str:
        """One line, its words cut."""
        words = " ".join(repr(word if len(word) < 60 else f"{word[:20]}…({len(word)})") for word in self.argv)
        return f"{self.family} {words}: {self.why}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = Parser(prog=PROG, description=__doc__)
    out.add_argument("families", metavar="FAMILY", nargs="*", help=", ".join(GUARDS))
    out.add_argument("--lines", metavar="N", type=int, default=LINES, help=f"of each family ({LINES})")
    out.add_argument("--seed", metavar="N", type=int, default=1, help="another seed gives other lines (1)")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the families that are named, or all; 1 where a line did not hold."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    if unknown := set(args.families) - set(GUARDS):
        raise UsageError(f"no family {', '.join(sorted(unknown))}; choose from {', '.join(GUARDS)}")
    failed = 0
    for family in args.families or GUARDS:
        started, codes = time.perf_counter(), dict.fromkeys(CODES, 0)
        for found in fuzz(family, args.lines, args.seed):
            if isinstance(found, Broken):
                failed += 1
                print(found.text(), file=sys.stderr)
            else:
                codes[found] += 1
        ended = ", ".join(f"{number} with {code}" for code, number in codes.items())
        print(f"{family}: {args.lines:,} lines, ended {ended}; {time.perf_counter() - started:.0f} s")
    return 1 if failed else 0


def fuzz(family: str, count: int, seed: int) -> Iterator[int | Broken]:
    """The exit code of each line, or why it did not hold."""
    command = importlib.import_module(f"headcount.bench.{family}.__main__")
    warm(family, command.main)
    for argv in lines(command.parser(), random.Random(f"{family} {seed}"), count, GUARDS[family]):
        code, why = outcome(lambda argv=argv: command.main(argv))
        yield Broken(family, argv, why) if why else code


def warm(family: str, command: Callable[[Sequence[str]], int]) -> None:
    """Import what lines of a family import, so that each fork has it."""
    if family in ("derive", "routing", "latency"):
        importlib.import_module("headcount.bench.derive.derivation")
        importlib.import_module("headcount.models.build")


def lines(parser: argparse.ArgumentParser, rng: random.Random, count: int, guard: Sequence[str]) -> Iterator[list[str]]:
    """Command lines of one to four options of a parser, with a hostile value in each."""
    options = [action for action in parser._actions if action.option_strings and action.dest not in DEAR]
    for _ in range(count):
        chosen = rng.sample(options, rng.randint(1, 4))
        taking = [action for action in chosen if action.nargs != 0] or [next(a for a in options if a.nargs != 0)]
        wrong = rng.choice(taking)
        argv = []
        for action in {id(action): action for action in (*chosen, wrong)}.values():
            argv += [rng.choice(action.option_strings), *_words(action, rng, action is wrong)]
        yield [*argv, *guard]


def _words(action: argparse.Action, rng: random.Random, wrong: bool) -> list[str]:
    if action.nargs == 0:
        return []
    number = action.nargs if isinstance(action.nargs, int) else 1 if action.nargs is None else rng.randint(1, 3)
    name = action.metavar if isinstance(action.metavar, str) else ""
    sane = list(map(str, action.choices)) if action.choices else list(SANE.get(name, ("1", "3")))
    words = [rng.choice(sane) for _ in range(number)]
    if wrong:
        words[rng.randrange(number)] = rng.choice(HOSTILE)
    return words


def outcome(command: Callable[[], int]) -> tuple[int, str]:
    """The exit code of ``command`` in a fork of this process, and what is wrong with how it ended; empty where it
    held."""
    with tempfile.TemporaryDirectory() as name:
        folder, streams = Path(name, "work"), [Path(name, stream) for stream in ("out", "err")]
        furnish(folder)
        before = contents(folder)
        pid = os.fork()
        if not pid:
            _child(command, folder, *streams)
        status = _waited(pid)
        out, err = (path.read_text("utf-8", "replace") if path.exists() else "" for path in streams)
        left = contents(folder)
    if status is None:
        return -1, f"still ran after {SECONDS:.0f} s"
    code = os.waitstatus_to_exitcode(status)
    said = err.strip().splitlines()
    problems = {
        f"exit code {code}": code not in CODES,
        f"a traceback: {said[-1] if said else ''}": "Traceback" in err,
        f"{len(said)} lines on stderr: {said[0] if said else ''}": code != 0 and len(said) > 2,
        "printed though it failed": code > 1 and bool(out),
        f"left {', '.join(sorted(left - before))}": code > 1 and left != before,
    }
    return code, "; ".join(text for text, so in problems.items() if so)


def furnish(folder: Path) -> None:
    """Files that options may name: what is not text, not whole, nested too deep, or no file at all."""
    (folder / "folder").mkdir(parents=True)
    (folder / "loop").symlink_to("loop")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "nested.json").write_text("[" * 20000)
    (folder / "half.jsonl").write_text('{"kind": "latency"}\n{"kind": \n')
    (folder / "surrogate.txt").write_bytes(b"\xed\xa0\x80 1 2\n")


def contents(folder: Path) -> set[str]:
    """The names of everything in a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def _child(command: Callable[[], int], folder: Path, out: Path, err: Path) -> None:
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(folder)
        for descriptor, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            # a stream that cannot be flushed must not keep the fork alive
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _waited(pid: int) -> int | None:
    """The status of a child that ends in time; None for one that does not, which is ended."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    sys.exit(main())
