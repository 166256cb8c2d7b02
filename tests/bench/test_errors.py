"""Messages and exit codes of the errors that end a command."""

import errno
import os

import pytest

from headcount.bench.errors import format_error


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
