"""What a compiled kernel's binary needs and does, read by the disassembler that comes with triton."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple


class Binary(NamedTuple):
    """Of one kernel: registers of a thread, its stack in bytes, and how often the named instructions stand in it."""

    registers: int
    stack_bytes: int
    counts: dict[str, int]


def read_binary(cubin: bytes, tool: Path, patterns: dict[str, str]) -> Binary:
    """``tool`` asked about ``cubin``; ``patterns`` are regular expressions of instructions by name.

    Raises RuntimeError where it cannot read the binary.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (_asked(tool, option, file.name) for option in ("-res-usage", "-sass"))
    registers, stack = (re.search(rf"{name}:(\d+)", usage) for name in ("REG", "STACK"))
    if not registers or not stack:
        raise RuntimeError(f"{tool.name} tells no registers: {usage[:200]}")
    counts = {name: len(re.findall(pattern, code)) for name, pattern in patterns.items()}
    return Binary(int(registers.group(1)), int(stack.group(1)), counts)


def _asked(tool: Path, option: str, path: str) -> str:
    return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout
