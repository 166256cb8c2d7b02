"""What a command says of the errors that end it, and with which code."""

import errno
import os

import pytest

from headcount.bench.errors import EnvironmentMissing, UsageError, said_of


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


def test_exit_codes():
    assert (UsageError.exit_code, EnvironmentMissing.exit_code) == (2, 3)
