"""Memory that is kept: what was freed once is not fetched from the system again."""

import subprocess
import sys

import pytest

CHILD = """
import resource, sys
from headcount.bench.isolated.heap import keep_freed

if sys.argv[1] == "kept":
    keep_freed()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # larger than what the C library keeps by itself
    text = b"x" * (96 * 2**20)
    del text
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is the C library's of Linux")
def test_memory_that_was_freed_is_not_fetched_again():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", CHILD, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "given back")
    )
    # a page at a time, or a large one
    assert kept < 10 < given_back
