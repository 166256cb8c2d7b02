"""Places that cannot be written, users without a home, and what else surrounds a command."""

import os
import signal
import subprocess

import pytest

import headcount
from tests.faults.conftest import SAY, choose, program

ROOT = headcount.CHECKOUT
TINY = "latency --layer mha-base --arm reference --seq-len 3 --tokens 3 --blocks 1 --pass forward"
NEEDS_ROOT = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="this needs root")


def read_only(place, command):
    """A command in this checkout, which is a disk that nobody may write, with a page that is stale."""
    (place.folder / "stale").write_text("stale\n")
    page = f"mount --bind {place.folder}/stale reports/generated/notation.md"
    mount = f'mount --bind "$0" "$0" && cd "$0" && {page} && mount -o remount,ro,bind "$0" && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", mount, str(ROOT), *place.argv(command)]
    return subprocess.run(argv, env=place.environment(), capture_output=True, text=True, timeout=300)


@NEEDS_ROOT
@pytest.mark.fault(
    "a checkout on a disk that nobody may write", "what prints prints; what writes there: exit code 2, a line"
)
@choose(*SAY, dear=("macs --counter", "derive", "latency", "latency --estimate"))
def test_a_checkout_that_cannot_be_written_answers(command, place):
    done = read_only(place, command)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


@NEEDS_ROOT
@pytest.mark.fault("a place for results that nobody may write", "exit code 2 and a line, before anything is measured")
@choose(
    "macs --counter closed-form --table moa-table3 -o README.md",
    "budget --macs 700M -o reports/x",
    "report --only notation --out docs",
    dear=(f"{TINY} --record", f"{TINY} --json records.jsonl", f"{TINY} --out-dir records", "report --only notation"),
)
def test_a_place_that_cannot_be_written_is_one_line(command, place):
    done = read_only(place, command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) <= 2 and "Read-only file system" in done.stderr


@pytest.mark.parametrize("user", ["without HOME", "whom the system does not know"])
@pytest.mark.fault("no home", "the same output as with one")
@choose("macs", dear=("budget", "macs --module", "derive", "latency --estimate", "routing"))
def test_without_a_home_it_is_the_same(command, user, place):
    argv, before = place.argv(command), []
    if user != "without HOME":
        # in a namespace of its own, where whose files are ours are this user's
        before = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
        if subprocess.run([*before, "true"], capture_output=True).returncode:
            pytest.skip("this system gives nobody a namespace of users")
    env = place.environment(HOME=None, XDG_CACHE_HOME=None, XDG_CONFIG_HOME=None, XDG_DATA_HOME=None)
    options = {"cwd": place.folder, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([*before, *argv], env=env, **options)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout == place.says(command)


LOCALES = {
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "LC_ALL=POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "utf-16": {"PYTHONIOENCODING": "utf-16"},
    "C.UTF-8": {"LC_ALL": "C.UTF-8"},
    "a locale that is not there": {"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE"},
}


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.fault("a locale that lacks characters, or is not there", "the same numbers, other signs for what it lacks")
@choose("macs", dear=("budget", "macs --module", "derive", "latency --estimate", "latency compare", "lock"))
def test_every_locale_prints(command, locale, place):
    done = place.run(command, env=LOCALES[locale], text=None, encoding=None)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    encoding = LOCALES[locale].get("PYTHONIOENCODING", "utf-8" if "UTF" in str(LOCALES[locale]) else "ascii")
    digits = "".join(filter(str.isdigit, done.stdout.decode(encoding)))
    assert digits == "".join(filter(str.isdigit, place.says(command)))


SETTINGS = {
    "PYTHONOPTIMIZE=1": {"PYTHONOPTIMIZE": "1"},
    "PYTHONWARNINGS=error": {"PYTHONWARNINGS": "error"},
    "PYTHONHASHSEED=1": {"PYTHONHASHSEED": "1"},
    "PYTHONDEVMODE=1": {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "ignore"},
    "PYTHONSAFEPATH=1": {"PYTHONSAFEPATH": "1"},
    "PYTHONDONTWRITEBYTECODE=1": {"PYTHONDONTWRITEBYTECODE": "1"},
    "COLUMNS=1": {"COLUMNS": "1"},
    "TERM=dumb": {"TERM": "dumb"},
    "OMP_NUM_THREADS=2": {"OMP_NUM_THREADS": "2"},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.fault("a setting of Python or of the terminal", "exit code 0 and the same JSON, byte for byte")
@choose("macs", dear=("budget", "macs --counter", "macs --module", "derive", "derive --module", "lock", "routing"))
def test_a_setting_changes_no_byte(command, setting, place):
    more = () if command == "lock" else ("--format", "json")
    done = place.run(command, *more, env=SETTINGS[setting])
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout == place.says(command, *more, env={"PYTHONHASHSEED": "2"})


@pytest.mark.parametrize("mib", [60, 200, 400, 900, 1500])
@pytest.mark.fault(
    "a limit of memory, down to what Python itself needs", "the table, or exit code 3 and one line; torch's own abort"
)
@choose("macs", dear=("budget", "macs --counter", "derive", "latency", "routing"))
def test_a_limit_of_memory_is_one_line(command, mib, place):
    resource = pytest.importorskip("resource")

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (mib * 2**20, mib * 2**20))

    done = place.run(command, preexec_fn=limited, env={"OPENBLAS_NUM_THREADS": "1"})
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    if done.returncode:
        # before the command is known, or where torch's own start ends the process
        said = [f"{name}: error: this needs more memory than there is" for name in ("headcount", program(command))]
        aborted = done.returncode == -signal.SIGABRT and "std::bad_alloc" in done.stderr
        assert aborted or (done.returncode == 3 and errors in ([said[0]], [said[1]])), done.stderr
        assert done.stdout == ""
    assert "Traceback" not in done.stderr
