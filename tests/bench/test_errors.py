"""What a command says of the errors that end it, and with which code."""

import errno
import os
import signal
import sys

import pytest

from headcount.bench.errors import EnvironmentMissing, Stopped, UsageError, asked_to_end, read_file, said_of


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError("libtorch_cpu.so: cannot allocate memory in static TLS block"),
    ],
    ids=str,
)
def test_whoever_says_that_memory_ends_it_is_one_line(error):
    assert said_of(error) == ("this needs more memory than there is", 3)


@pytest.mark.parametrize("error", [RuntimeError("shapes 3 and 5"), ValueError("can't allocate memory")], ids=str)
def test_any_other_error_is_one_of_ours(error):
    assert said_of(error) is None


@pytest.mark.parametrize("name", [None, "headcount.bench.gone", "json.gone"])
def test_a_module_of_ours_or_of_pythons_that_is_missing_is_an_error_of_ours(name):
    assert said_of(ModuleNotFoundError("gone", name=name)) is None


def test_a_package_that_is_missing_is_named_with_what_brings_it():
    said, code = said_of(ModuleNotFoundError("gone", name="transformers.models"))
    assert code == 3 and said.startswith("this needs transformers, which is not installed: pip install 'headcount[hf]'")
    said, _ = said_of(ModuleNotFoundError("gone", name="pandas"))
    assert said.startswith("this needs pandas, which is not installed: pip install 'headcount';")


def test_a_name_that_no_file_has_is_said():
    with pytest.raises(UsageError, match="^cannot read a\0b: embedded null byte$"):
        read_file("a\0b")


def test_exit_codes():
    assert (UsageError.exit_code, EnvironmentMissing.exit_code) == (2, 3)


TAKEN = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP", "SIGALRM") if name in signal.Signals.__members__]


def state():
    return [signal.getsignal(number) for number in TAKEN], sys.unraisablehook


@pytest.fixture
def usual():
    """Signals as a process has them that was just started."""
    before = [signal.signal(number, signal.SIG_DFL) for number in TAKEN]
    yield
    for number, handler in zip(TAKEN, before, strict=True):
        signal.signal(number, handler)


def test_signals_are_afterwards_as_before(usual):
    before = state()
    with asked_to_end():
        handlers, hook = state()
        assert signal.SIG_DFL not in handlers and hook is not before[1]
    assert state() == before
    with pytest.raises(Stopped) as found, asked_to_end():
        os.kill(os.getpid(), signal.SIGTERM)
    assert found.value.number == signal.SIGTERM and state() == before


def test_what_somebody_takes_a_signal_for_stays(usual):
    for number in TAKEN:
        signal.signal(number, lambda *_: None)
    before = state()
    with asked_to_end():
        assert state() == before
    assert state() == before


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarm")
def test_an_alarm_of_somebody_elses_ends_it_too(usual):
    with pytest.raises(Stopped) as found, asked_to_end():
        os.kill(os.getpid(), signal.SIGALRM)
    assert found.value.number == signal.SIGALRM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_class_names_its_attributes_is_that_signal(number, usual):
    """Python before 3.12 makes an error of ours of it."""

    class Field:
        def __set_name__(self, owner, name):
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt) as ended, asked_to_end():
        type("Made", (), {"field": Field()})
    assert isinstance(ended.value, Stopped) == (number == signal.SIGTERM)
