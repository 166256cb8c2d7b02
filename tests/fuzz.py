"""``python -m tests.fuzz [FAMILY …]``: command lines with something wrong in each, run one by one.

A line is made of a command's own options: the parser says which there are and what they take, and at least one value
is of HOSTILE. A line holds where it ends within its time with a documented exit code, says at most two lines on
stderr with nothing in them that a terminal obeys, prints nothing where it fails, leaves no file, and no traceback.
Lines run in forks of a process that has imported everything already, each in an empty folder, with bounded memory.
Where processes are not forked there is nothing to run. The figures of a family are stored for the report where it ran
as many lines as unless told otherwise.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import headcount
from headcount.bench.cli import Parser, run
from headcount.bench.env import commit, machine
from headcount.bench.errors import UsageError
from headcount.bench.isolated import ask
from headcount.bench.table import shown
from tests import warm
from tests.fuzz_files import ROUTED, checkpoint
from tests.fuzz_outcome import CODES, HANG, TRACEBACK, outcomes
from tests.fuzz_values import HOSTILE, SANE

PROG = "python -m tests.fuzz"
ROOT = headcount.CHECKOUT
LINES, TOGETHER = 2000, 12
"""Of a family, and in one fork."""
RECORD = ROOT / "reports" / "records" / "fuzz.json"


@dataclass(frozen=True)
class Family:
    """A command, by the module of its parser; ``before`` and ``after`` its lines, ``uses`` what they import late.

    ``before`` is a line that is right by itself, so that what is wrong is what was put behind it. ``asks``: whether it
    is about somebody's code, which a process that has torch already answers.
    """

    module: str
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    uses: Sequence[str] = ("headcount.models.build",)
    asks: bool = False


FAMILIES = {
    # counters and clocks are dear; what is wrong with a line shows before they begin
    "macs": Family("bench.macs.__main__", after=("--counter", "closed-form"), uses=()),
    "latency": Family(
        "bench.latency.__main__",
        before=("--layer", "mha-base", "--seq-len", "10"),
        after=("--estimate", "--device", "h200"),
        uses=("headcount.bench.latency.launch_count",),
    ),
    "derive": Family(
        "bench.derive.__main__",
        before=("--preset", "transformer-base", "--part", "feed-forward", "--vars", "T"),
        uses=("headcount.bench.derive.derivation",),
        asks=True,
    ),
    "budget": Family("bench.budget.__main__", before=("--macs", "1G"), after=("--limit", "3"), uses=()),
    "routing": Family(
        "bench.routing.__main__",
        before=("--checkpoint", "model.pt", "--tokens", "ids.txt", "--preset", *ROUTED),
        uses=("headcount.bench.routing.run", "headcount.bench.routing.tables"),
    ),
    "lock": Family("bench.lock.__main__", before=("--module", "model.py:make"), asks=True),
    "compare": Family("bench.latency.compare", before=("compare",), uses=("headcount.bench.latency.__main__",)),
    "report": Family("reports.__main__", after=("--only", "notation", "nothing"), uses=("headcount.reports.contents",)),
}
"""What is fuzzed, by the name of its command."""

DEAR = {"audit", "published", "example", "record", "help", "version", "quick", "part"}
"""Options that run for long, or write into the checkout, whatever is wrong beside them."""


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
    out.add_argument("families", metavar="FAMILY", nargs="*", help=", ".join(FAMILIES))
    out.add_argument("--lines", metavar="N", type=int, default=LINES, help=f"of each family ({LINES})")
    out.add_argument("--seed", metavar="N", type=int, default=1, help="another seed gives other lines (1)")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the families that are named, or all; 1 where a line did not hold."""
    return run(PROG, lambda: _main(parser().parse_args(argv)))


def _main(args: argparse.Namespace) -> int:
    if unknown := set(args.families) - set(FAMILIES):
        raise UsageError(f"no family {', '.join(sorted(unknown))}; choose from {', '.join(FAMILIES)}")
    failed = 0
    for family in args.families or FAMILIES:
        started, codes, broken = time.perf_counter(), dict.fromkeys(CODES, 0), []
        for found in fuzz(family, args.lines, args.seed):
            if isinstance(found, Broken):
                broken.append(found)
                print(shown(found.text()), file=sys.stderr, flush=True)
            else:
                codes[found] += 1
        seconds = time.perf_counter() - started
        ended = ", ".join(f"{number} with {code}" for code, number in codes.items())
        print(f"{family}: {args.lines:,} lines, ended {ended}, {len(broken)} did not hold; {seconds:.0f} s", flush=True)
        failed += len(broken)
        if args.lines >= LINES:
            store(family, args, codes, broken, seconds)
    return 1 if failed else 0


def store(
    family: str, args: argparse.Namespace, codes: dict[int, int], broken: Sequence[Broken], seconds: float
) -> None:
    """Keep the figures of a family beside those of the others."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found[family] = {
        "lines": args.lines,
        "seed": args.seed,
        "ended": {str(code): number for code, number in codes.items()},
        "tracebacks": sum(TRACEBACK in one.why for one in broken),
        "hangs": sum(HANG in one.why for one in broken),
        "failures": len(broken),
        "seconds": round(seconds),
        "machine": machine(),
        "commit": commit(),
    }
    RECORD.write_text(json.dumps(found, indent=2) + "\n")


def fuzz(family: str, count: int, seed: int) -> Iterator[int | Broken]:
    """The exit code of each line, or why it did not hold."""
    of = FAMILIES[family]
    for name in of.uses:
        importlib.import_module(name)
    module = importlib.import_module(f"headcount.{of.module}")
    command = module.main if hasattr(module, "main") else importlib.import_module(of.uses[0]).main
    beside = {"model.pt": checkpoint()} if "model.pt" in of.before else {}
    made = lines(module.parser(), random.Random(f"{family} {seed}"), count, of)
    with answering() if of.asks else contextlib.nullcontext():
        while some := list(itertools.islice(made, TOGETHER)):
            for argv, (code, why) in zip(
                some, outcomes([partial(command, argv) for argv in some], beside), strict=True
            ):
                yield Broken(family, argv, why) if why else code


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Somebody's code is asked about in forks of one process."""
    own = ask._run
    with warm.process() as ask._run:
        try:
            yield
        finally:
            ask._run = own


def lines(parser: argparse.ArgumentParser, rng: random.Random, count: int, of: Family) -> Iterator[list[str]]:
    """Command lines of one to four options of a parser and its places, with a hostile value in each."""
    known = [action for action in parser._actions if action.dest not in DEAR]
    options = [action for action in known if action.option_strings]
    places = [action for action in known if not action.option_strings]
    for _ in range(count):
        chosen = [*rng.sample(options, min(len(options), rng.randint(1, 4))), *places]
        taking = [action for action in chosen if action.nargs != 0] or [next(a for a in options if a.nargs != 0)]
        wrong = rng.choice(taking)
        argv = list(of.before)
        for action in {id(action): action for action in (*chosen, wrong)}.values():
            name = [rng.choice(action.option_strings)] if action.option_strings else []
            argv += [*name, *_words(action, rng, action is wrong)]
        yield [*argv, *of.after]


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


if __name__ == "__main__":
    sys.exit(main())
