"""Compile every launch of a GPU campaign's Triton kernels ahead of time, without a GPU.

    python -m tests.models.triton_compile FILE      write the table of sm_80, sm_90 and sm_100 as CSV

The launches of triton_launches.py are compiled in bfloat16 and not started. Triton stores compiled kernels in
the folder TRITON_CACHE_DIR by source, specialisation, options and version: a campaign on another machine with this
folder and the same version of Triton compiles nothing.
"""

import csv
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from headcount.models.kernels import triton_configs

ARCHS = (80, 90, 100)
"""Compute capabilities that are compiled for."""
# KiB of shared memory of a multiprocessor; 1 KiB of each block is the system's (CUDA C++ programming guide, table 21+)
SHARED_KIB = {80: 164, 90: 228, 100: 228}
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32
INSTRUCTIONS = {
    "tensor": r"\b(?:HGMMA|HMMA|UTC\w*MMA)",
    "wide": r"\bLDG\.E\.128|\bLDGSTS\.E\S*\.128",
    "spills": r"\b(?:LDL|STL)\b",
}
# kernels that multiply matrices
PRODUCTS = ("route", "head_route", "expert", "weight_grad", "gated", "gated_grad", "mqa", "ragged", "decode")

COLUMNS = ("kernel", "shape", "arch", "registers", "shared_bytes", "stack_bytes", "spills", "tensor", "wide", "blocks")
COLUMNS += ("verdict", "source", "triton")


class Binary(NamedTuple):
    """A compiled kernel: registers of a thread, stack in bytes, and the number of each kind of instruction."""

    registers: int
    stack_bytes: int
    counts: dict[str, int]


def main(path: str) -> None:
    """Write the table of every configuration and architecture as CSV."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = [row for made in pool.map(rows, ARCHS) for row in made]
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(sorted(found, key=lambda row: (row["kernel"], row["shape"], row["arch"])))


def digest() -> str:
    """Return a hash of the kernels' sources and launch configurations, which shows whether a stored table is stale."""
    folder = Path(triton_configs.__file__).parent
    texts = [(folder / f"{name}.py").read_bytes() for name in ("triton_attention", "triton_configs", "triton_rows")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def rows(arch: int, dtype: str = "bfloat16") -> list[dict[str, Any]]:
    """Compile every launch for one architecture and return a row for each configuration.

    Of launches that differ only in which sizes are multiples of 16, the row is that of an unfit one, else of the one
    with most registers.
    """
    from tests.models.triton_launches import launches

    found: dict[tuple[str, str], dict[str, Any]] = {}
    for launched, binary in {
        made.hash: (launched, made) for launched, made in compile_launches(launches(dtype, arch), arch)
    }.values():
        row = _row(launched, binary, arch)
        key = row["kernel"], row["shape"]
        found[key] = max(found.get(key, row), row, key=lambda r: (r["verdict"] != "ok", r["registers"]))
    return list(found.values())


def compile_launches(launches: Iterable[Any], arch: int) -> Iterator[tuple[Any, Any]]:
    """Yield each launch with its kernel, compiled as where it runs: Triton asks a driver for the GPU's architecture."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    # Triton keeps its kernels by device: one for each architecture
    target = GPUTarget("cuda", arch, 32)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: arch, get_current_stream=lambda device: 0, get_current_target=lambda: target
        )
    )
    for launched in launches:
        options = launched.constants | launched.launch.options
        yield launched, launched.kernel.warmup(*launched.arguments, grid=launched.grid, **options)


def shape_of(launched: Any) -> str:
    """Return the constants that distinguish configurations."""
    quiet = ("PRECISION", "E_PAD", "K_PAD", "D_PAD", "RENORMALISE")
    quiet += ("UNIT",) if launched.constants.get("UNIT") == 8 else ()
    quiet += ("SPLITS",) if launched.constants.get("PARTED") is False else ()
    named = [(k, v) for k, v in launched.constants.items() if k.isupper() and k not in quiet and v is not False]
    words = [k.lower() if v is True else f"{k}{v}" for k, v in named]
    given = dict(zip(launched.kernel.arg_names, launched.arguments, strict=False))
    words += ["transposed"] * (given.get("stride_wi") == 1)
    return " ".join([*words, f"w{launched.launch.num_warps}", f"s{launched.launch.num_stages}"])


def _row(launched: Any, made: Any, arch: int) -> dict[str, Any]:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    binary = read_binary(made.asm["cubin"], tool, INSTRUCTIONS)
    row = {
        "kernel": launched.kernel.__name__.removesuffix("_kernel"),
        "shape": shape_of(launched),
        "arch": arch,
        "registers": binary.registers,
        "shared_bytes": made.metadata.shared,
        "stack_bytes": binary.stack_bytes,
        **binary.counts,
        "blocks": blocks_per_multiprocessor(arch, binary.registers, made.metadata.shared, launched.launch.num_warps),
    }
    return {**row, "verdict": ", ".join(faults(row)) or "ok", "source": digest(), "triton": triton.__version__}


def read_binary(cubin: bytes, tool: Path, patterns: dict[str, str]) -> Binary:
    """Disassemble ``cubin`` with ``tool``; ``patterns`` are regular expressions of instructions by name."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (_disassemble(tool, option, file.name) for option in ("-res-usage", "-sass"))
    registers, stack = (re.search(rf"{name}:(\d+)", usage) for name in ("REG", "STACK"))
    assert registers and stack, usage[:200]
    counts = {name: len(re.findall(pattern, code)) for name, pattern in patterns.items()}
    return Binary(int(registers.group(1)), int(stack.group(1)), counts)


def _disassemble(tool: Path, option: str, path: str) -> str:
    return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout


def blocks_per_multiprocessor(arch: int, registers: int, shared_bytes: int, num_warps: int) -> int:
    """Return the number of resident blocks: registers come in units of 8 a thread, shared memory with 1 KiB more."""
    threads = 32 * num_warps
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    by_shared = SHARED_KIB[arch] * 1024 // (shared_bytes + 1024)
    return min(by_registers, by_shared, THREADS // threads, BLOCKS)


def faults(row: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why a configuration is unfit."""
    # some kernels have a few bytes of stack that no instruction reads or writes
    if row["spills"]:
        yield "spills"
    if row["kernel"] in PRODUCTS and not row["tensor"]:
        yield "no tensor cores"
    if not row["blocks"]:
        yield "does not fit"


if __name__ == "__main__":
    main(sys.argv[1])
