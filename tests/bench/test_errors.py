"""Messages and exit codes of the errors that end a command."""

import errno
import os
import pickle

import pytest

from headcount.bench.errors import Option, UsageError, excerpt, format_error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=str,
)
def test_out_of_memory_is_one_line(error):
    assert format_error(error) == ("this needs more memory, processes or open files than there are", 3)


INTERNAL = [ModuleNotFoundError("gone", name=name) for name in (None, "headcount.bench.gone", "json.gone")]
INTERNAL += [RuntimeError("shapes 3 and 5"), ValueError("can't allocate memory")]


@pytest.mark.parametrize("error", INTERNAL, ids=repr)
def test_other_errors_are_internal(error):
    assert format_error(error) is None


def test_missing_package_names_a_command():
    text, code = format_error(ModuleNotFoundError("gone", name="matplotlib"))
    assert "pip install matplotlib" in text and code == 3


@pytest.mark.parametrize("text, line", [
    ("expected input[1, 1, 224, 224] to have 3 channels, but got 1 channels instead. Second sentence.",
     "expected input[1, 1, 224, 224] to have 3 channels, but got 1 channels instead."),
    ("\nsizes differ\nmore", "sizes differ"), ("use x.mean(2.5)", "use x.mean(2.5)"), ("é\x1b\ud800", "é??"), ("", ""),
    ("word " * 59 + "ended", "word " * 59 + "ended"), ("word " * 60 + "ended", "word " * 58 + "word..."),
    ("w" * 301, "w" * 297 + "..."),
])  # fmt: skip
def test_error_is_one_whole_sentence(text, line):
    assert excerpt(ValueError(text)) == line and len(line) <= 300


def test_error_keeps_its_options_between_processes():
    error = UsageError("it needs ", Option("seq_len", 8), advice=[Option("input", "1,3"), " gives one"], trace="lines")
    sent = pickle.loads(pickle.dumps(error))
    assert str(sent) == "it needs --seq-len 8; --input 1,3 gives one" and sent.options == error.options
    assert sent.ending(["--seq-len"]) == "; headcount count takes --input"
    assert format_error(sent) == (f"{sent}\nlines", 2)
