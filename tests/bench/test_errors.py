"""What a command says of the errors that end it, and with which code."""

import errno
import os

import pytest

from headcount.bench.errors import UsageError, format_error, read_file


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
    assert format_error(error) == ("this needs more memory than there is", 3)


@pytest.mark.parametrize("error", [RuntimeError("shapes 3 and 5"), ValueError("can't allocate memory")], ids=str)
def test_any_other_error_is_one_of_ours(error):
    assert format_error(error) is None


@pytest.mark.parametrize("name", [None, "headcount.bench.gone", "json.gone"])
def test_a_module_of_ours_or_of_pythons_that_is_missing_is_an_error_of_ours(name):
    assert format_error(ModuleNotFoundError("gone", name=name)) is None


def test_a_name_that_no_file_has_is_said():
    with pytest.raises(UsageError, match="^cannot read a\0b: embedded null byte$"):
        read_file("a\0b")
