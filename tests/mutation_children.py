"""What processes that tests start run of a room: mutmut notes for each test what its own process runs, and no other."""

import json
from collections.abc import Mapping
from pathlib import Path

_NOTES = """

def _note_what_runs():
    import os

    own = str(os.getpid())
    # mutmut's process is the first that imports this, and those that it starts know of it
    if os.environ.setdefault("MUTMUT_PROCESS", own) == own or os.environ.get("MUTANT_UNDER_TEST") != "stats":
        return
    from mutmut.mutation import trampoline

    noted = set()

    def note(function, caller=None):
        line = f"{os.environ.get('PYTEST_CURRENT_TEST', '')}\\t{function}\\n"
        if line not in noted:
            noted.add(line)
            with open(SEEN, "a", encoding="utf-8") as file:
                file.write(line)

    trampoline.record_trampoline_hit = note


_note_what_runs()
"""


def notes(seen: Path) -> str:
    """What the package does last of all when it is imported: while mutmut notes which test runs which function,
    another process than its own writes them to ``seen``."""
    return _NOTES.replace("SEEN", repr(str(seen)))


def tests_of(seen: Path) -> dict[str, list[str]]:
    """By function, the tests of which ``seen`` says that their processes run it."""
    found: dict[str, list[str]] = {}
    for line in seen.read_text("utf-8").splitlines() if seen.exists() else ():
        said, _, function = line.partition("\t")
        # pytest adds the phase, as in "test_file.py::test_name (call)"
        test, _, _ = said.rpartition(" ")
        if test:
            found.setdefault(function, []).append(test)
    return found


def add(statistics: Path, by_function: Mapping[str, list[str]]) -> None:
    """Give the functions these tests besides those that mutmut has noted; tests that it does not know are none."""
    stats = json.loads(statistics.read_text())
    known, tests = stats["tests_by_mangled_function_name"], stats["duration_by_test"]
    for function, others in by_function.items():
        known[function] = list(dict.fromkeys([*known.get(function, ()), *filter(tests.__contains__, others)]))
    statistics.write_text(json.dumps(stats))
