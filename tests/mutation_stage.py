"""Where mutants are made: a copy of the rooms as a wheel has them, with the settings of mutmut and what it found."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headcount.bench.errors import UsageError
from tests import mutation_children, mutation_imports

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutation"
SHARED = ("anew.py", "conftest.py", "mutation_shared.py", "plain.py", "tally.py", "warm.py")
"""What tests of several rooms import."""

ROOMS = {
    # whole models' module paths are held by the test that compares them with the modules
    "formulas": ("formulas", "agreement"),
    "models": ("models",),
    "bench": ("bench",),
}
"""A room -> the folders of the tests that are to notice its mutants."""

LEFT_OUT = {
    "models": ("models/test_compile.py",),
    "bench": (
        "bench/test_case.py::test_a_row_has_one_preset_one_ledger_and_one_of_its_ideal_form",
        "bench/test_case.py::test_a_point_of_a_grid_has_one_ledger_of_each_form",
        "bench/derive/test_derive.py::test_without_symbols_the_same_comes_from_a_grid",
        "bench/isolated/test_ask.py::test_without_torch_nothing_is_run",
        "bench/isolated/test_ask.py::test_ctrl_c_is_one_line_and_leaves_nothing",
        "bench/macs/test_macs_command.py::test_ctrl_c_ends_with_one_line",
    ),
}
"""Tests that cannot run where mutants are: Dynamo traces no function that mutmut stands before, others count calls of
one by its name, hide the packages from a process or interrupt it early, and some read a checkout."""

NEEDED = {
    "triton": ("triton_*.py",),
    "deepspeed": ("counters/deepspeed_profiler.py",),
    "torchvision": ("torchvision_*.py",),
}
"""An optional package -> the modules whose tests are skipped without it."""

SETTINGS = """[mutmut]
source_paths=headcount/{room}/
also_copy=
    headcount
    {rooms}
only_mutate=
    {files}
pytest_add_cli_args_test_selection=
    {tests}
pytest_add_cli_args=
    -o
    addopts=-q --import-mode=importlib -p tests.anew -p tests.mutation_shared
    {left_out}
"""
"""pytest runs many times in one process, which the type checks of jaxtyping do not stand."""


def files_of(room: str) -> list[Path]:
    """The modules of a room that have something to change, and what they need to run."""
    missing = [pattern for package, names in NEEDED.items() if not find_spec(package) for pattern in names]
    found = (path for path in (ROOT / room).rglob("*.py") if path.stat().st_size)
    return sorted(path for path in found if not any(path.match(pattern) for pattern in missing))


@dataclass(frozen=True)
class Stage:
    """One part of a room under mutation: the ``files`` that are changed in it, in a folder of its ``name``."""

    room: str
    name: str
    files: Sequence[Path]

    @property
    def folder(self) -> Path:
        """Where mutmut runs."""
        return BUILD / self.name

    @property
    def statistics(self) -> Path:
        """Where mutmut keeps which test runs which function."""
        return self.folder / "mutants" / "mutmut-stats.json"

    @property
    def modules(self) -> tuple[str, ...]:
        """What the names of this part's functions begin with."""
        return tuple(f"{self._module(path)}." for path in self.files)

    @staticmethod
    def _module(path: Path) -> str:
        return ".".join(("headcount", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")

    @cached_property
    def inputs(self) -> str:
        """A digest of everything that decides what becomes of the room's mutants."""
        digest = hashlib.sha256()
        tests = [ROOT / "tests" / name for name in (*SHARED, *ROOMS[self.room])]
        for top in (*(ROOT / name for name in ("pyproject.toml", "headcount", *ROOMS)), *tests):
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def lay_out(self) -> float:
        """Make the folder, from nothing unless it is of these files already; the seconds of work that are in it."""
        said = self.folder / "inputs.json"
        if said.exists():
            before = json.loads(said.read_text())
            if before["inputs"] == self._said:
                return before["seconds"]
        shutil.rmtree(self.folder, ignore_errors=True)
        self._copy()
        return self.worked(0.0)

    def renew(self, judged: Callable[[int | None], bool]) -> float:
        """Bring the folder to the files as they are now, and forget what became of mutants but for those whose exit
        code is ``judged`` once and for all; the seconds of work that are in it. UsageError where nothing was run."""
        said = self.folder / "inputs.json"
        if not said.exists():
            raise UsageError(f"--again is for what was run: there is no {self.folder.relative_to(ROOT)}")
        self._forget_changed()
        # what is in it is among the statistics
        self._seen.unlink(missing_ok=True)
        self._copy()
        for path in self._kept_of_mutants():
            kept = json.loads(path.read_text())
            codes = kept["exit_code_by_key"]
            kept["exit_code_by_key"] = {name: code if judged(code) else None for name, code in codes.items()}
            path.write_text(json.dumps(kept))
        return self.worked(json.loads(said.read_text())["seconds"])

    def _forget_changed(self) -> None:
        """Forget which functions the tests of changed files run, so that mutmut runs these anew; all, where a file has
        changed that every test has. What else now runs a changed function is not seen: it can only survive more."""
        if not self.statistics.exists():
            return
        changed = self._changed_tests()
        if any(f"tests/{name}" in changed for name in SHARED):
            self.statistics.unlink()
            return
        stats = json.loads(self.statistics.read_text())

        def kept(test: str) -> bool:
            return test.partition("::")[0] not in changed

        times, known = stats["duration_by_test"], stats["tests_by_mangled_function_name"]
        stats["duration_by_test"] = {test: seconds for test, seconds in times.items() if kept(test)}
        stats["tests_by_mangled_function_name"] = {name: list(filter(kept, tests)) for name, tests in known.items()}
        self.statistics.write_text(json.dumps(stats))

    def _changed_tests(self) -> set[str]:
        """The files of tests that have changed, and those that import one, below a folder of a conftest too."""
        copied = [path.relative_to(self.folder) for path in (self.folder / "tests").rglob("*.py")]
        texts = {path.as_posix(): (ROOT / path).read_text() for path in copied if (ROOT / path).exists()}
        found = {path.as_posix() for path in copied if (self.folder / path).read_text() != texts.get(path.as_posix())}
        while more := {name for name in texts.keys() - found if any(_uses(name, texts[name], one) for one in found)}:
            found |= more
        return found

    def codes(self) -> dict[str, int | None]:
        """By mutant, the exit code that mutmut keeps of it; None of one that was not tried yet."""
        found: dict[str, int | None] = {}
        for path in self._kept_of_mutants():
            found |= json.loads(path.read_text())["exit_code_by_key"]
        return found

    def add_unseen(self) -> None:
        """Give functions the tests that mutmut does not see: those whose processes run them, and those that run what
        they make at import."""
        if self.statistics.exists():
            mutation_children.add(self.statistics, mutation_children.tests_of(self._seen))
            mutation_imports.add(self.statistics, dict(zip(map(self._module, self.files), self.files, strict=True)))

    @property
    def _seen(self) -> Path:
        return self.folder / "seen-by-children.txt"

    def drawn(self) -> list[str]:
        """The mutants that a sample is of; none before it is drawn."""
        return json.loads(self._drawn.read_text()) if self._drawn.exists() else []

    def skip(self, code: int, chosen: Iterable[str]) -> None:
        """Note that ``chosen`` are drawn, and ``code`` for every other mutant."""
        kept = set(chosen)
        self._drawn.write_text(json.dumps(sorted(kept)))
        for path in self._kept_of_mutants():
            found = json.loads(path.read_text())
            codes = found["exit_code_by_key"]
            tried = {name: None if own == code else own for name, own in codes.items()}
            found["exit_code_by_key"] = {name: own if name in kept else code for name, own in tried.items()}
            path.write_text(json.dumps(found))

    def _kept_of_mutants(self) -> list[Path]:
        # mutmut copies what it finds, an older run's results too
        return sorted((self.folder / "mutants" / "headcount").rglob("*.meta"))

    @property
    def _drawn(self) -> Path:
        return self.folder / "drawn.json"

    def _copy(self) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        copy = partial(shutil.copytree, ignore=ignored, dirs_exist_ok=True)
        copy(ROOT / "headcount", self.folder / "headcount")
        for room in ROOMS:
            copy(ROOT / room, self.folder / "headcount" / room)
            # python -m bench.macs is found as in a checkout
            copy(ROOT / room, self.folder / room)
        # tests read what it has stored, and run its examples
        copy(ROOT / "reports", self.folder / "headcount" / "reports")
        laid = [(ROOT / "tests" / name, self.folder / "tests" / name) for name in (*SHARED, *ROOMS[self.room])]
        for source, target in laid:
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copy2 if source.is_file() else copy)(source, target)
        # a folder of its path that is not there when Python starts is not looked into later
        (self.folder / "mutants").mkdir(exist_ok=True)
        shutil.copy2(ROOT / "pyproject.toml", self.folder)
        with (self.folder / "headcount" / "__init__.py").open("a") as package:
            package.write(mutation_children.notes(self._seen))
        (self.folder / "setup.cfg").write_text(self._settings())

    def _settings(self) -> str:
        names = [f"headcount/{path.relative_to(ROOT).as_posix()}" for path in self.files]
        tests = [f"tests/{name}" for name in ROOMS[self.room]]
        lines = partial(str.join, "\n    ")
        left_out = [
            f"--{'deselect' if '::' in name else 'ignore'}=tests/{name}" for name in LEFT_OUT.get(self.room, ())
        ]
        return SETTINGS.format(
            room=self.room, files=lines(names), tests=lines(tests), left_out=lines(left_out), rooms=lines(ROOMS)
        )

    @property
    def _said(self) -> str:
        return hashlib.sha256("\n".join([self.inputs, *map(str, sorted(self.files))]).encode()).hexdigest()

    def worked(self, seconds: float) -> float:
        """Note how long this part has taken by now."""
        (self.folder / "inputs.json").write_text(json.dumps({"inputs": self._said, "seconds": seconds}))
        return seconds

    def keep(self, found: dict[str, Any]) -> None:
        """Keep what was found, until the files change."""
        (self.folder / "found.json").write_text(json.dumps({"inputs": self.inputs, "found": found}))

    def kept(self, inputs: str) -> dict[str, Any] | None:
        """What was found on files of this digest; None where nothing was, or on other ones."""
        path = self.folder / "found.json"
        if not path.exists():
            return None
        stored = json.loads(path.read_text())
        return stored["found"] if stored["inputs"] == inputs else None


def _uses(name: str, text: str, other: str) -> bool:
    """Whether a file of tests has, or by its text imports, another one."""
    folder, _, module = other.removesuffix(".py").rpartition("/")
    if module == "conftest":
        return name.startswith(f"{folder}/")
    package = folder.replace("/", ".")
    return f"{package}.{module} " in text or bool(re.search(rf"from {package} import .*\b{module}\b", text))
