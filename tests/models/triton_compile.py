"""Compile every launch configuration of the Triton kernels ahead of time, without a GPU.

    python -m tests.models.triton_compile FILE      write the table of sm_80, sm_90 and sm_100 as CSV

The operators of the layers in triton_launches.py run on meta tensors, in bfloat16 for the table, and each launch is
recorded instead of started. Triton caches what it has compiled by source, options and version: a second run compiles
changed kernels.
"""

import csv
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

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
PRODUCTS = ("route", "expert", "weight_grad", "mqa", "ragged", "decode")

COLUMNS = ("kernel", "shape", "arch", "registers", "shared_bytes", "stack_bytes", "spills", "tensor", "wide", "blocks")
COLUMNS += ("verdict", "source", "triton")


class Source(NamedTuple):
    """One specialised kernel: types and constants of its arguments, and which are multiples of 16."""

    kernel: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    num_warps: int
    num_stages: int

    @property
    def shape(self) -> str:
        """The constants that distinguish configurations."""
        quiet = ("PRECISION", "E_PAD", "K_PAD", "D_PAD", "RENORMALISE")
        named = [(k, v) for k, v in self.constants if k.isupper() and k not in quiet and v is not False]
        words = [k.lower() if v is True else f"{k}{v}" for k, v in named]
        words += ["transposed"] * (("stride_wi", 1) in self.constants)
        return " ".join([*words, f"w{self.num_warps}", f"s{self.num_stages}"])


class Binary(NamedTuple):
    """Of one compiled kernel: registers of a thread, stack in bytes, and the number of each kind of instruction."""

    registers: int
    stack_bytes: int
    counts: dict[str, int]


def main(path: str) -> None:
    """Write the table of every configuration and architecture as CSV."""
    rows = [compiled(source, arch) for source in sources() for arch in ARCHS]
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def digest() -> str:
    """Return a hash of the kernels' sources and launch configurations, which tells whether a stored table is stale."""
    folder = Path(triton_configs.__file__).parent
    texts = [(folder / f"{name}.py").read_bytes() for name in ("triton_attention", "triton_configs", "triton_rows")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def sources(dtype: torch.dtype = torch.bfloat16) -> list[Source]:
    """Return the configurations of all launches; of those that differ only in which sizes are multiples of 16, the one
    with most."""
    from tests.models.triton_launches import launches

    found = sorted({specialised(launched) for launched in launches(dtype)}, key=lambda s: len(s.divisible))
    return sorted({(s.kernel, s.shape): s for s in found}.values(), key=lambda s: (s.kernel, s.shape))


def specialised(launched) -> Source:
    """Return a launch as triton specialises it when it runs: sizes of 1 are constants, multiples of 16 are known."""
    kernel, _, arguments, constants, launch = launched
    names = kernel.arg_names
    signature, fixed, divisible = [], dict(constants), []
    for index, (name, value) in enumerate(zip(names, arguments, strict=False)):
        if isinstance(value, int) and value == 1:
            signature.append((name, "constexpr"))
            fixed[name] = 1
            continue
        kind = _kind(value)
        signature.append((name, kind))
        if kind.startswith("*") or isinstance(value, int) and value % 16 == 0:
            divisible.append(index)
    signature += [(name, "constexpr") for name in names[len(arguments) :]]
    name = kernel.__name__.removesuffix("_kernel")
    return Source(name, tuple(signature), tuple(fixed.items()), tuple(divisible), launch.num_warps, launch.num_stages)


def _kind(value: Any) -> str:
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int):
        return "i32"
    names = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
    names |= {torch.int32: "*i32", torch.uint8: "*u8"}
    return names[value.dtype]


def compiled(source: Source, arch: int) -> dict[str, Any]:
    """Compile one configuration for one architecture and return its row of the table."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from headcount.models.kernels import triton_attention, triton_rows

    function = getattr(triton_rows, f"{source.kernel}_kernel", None)
    function = function or getattr(triton_attention, f"{source.kernel}_kernel")
    attributes = {(index,): [["tt.divisibility", 16]] for index in source.divisible}
    made = triton.compile(
        ASTSource(function, dict(source.signature), dict(source.constants), attributes),
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": source.num_warps, "num_stages": source.num_stages, "enable_fp_fusion": True},
    )
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    binary = read_binary(made.asm["cubin"], tool, INSTRUCTIONS)
    row = {
        "kernel": source.kernel,
        "shape": source.shape,
        "arch": arch,
        "registers": binary.registers,
        "shared_bytes": made.metadata.shared,
        "stack_bytes": binary.stack_bytes,
        **binary.counts,
        "blocks": blocks_per_multiprocessor(arch, binary.registers, made.metadata.shared, source.num_warps),
    }
    return {**row, "verdict": ", ".join(faults(row)) or "ok", "source": digest(), "triton": triton.__version__}


def read_binary(cubin: bytes, tool: Path, patterns: dict[str, str]) -> Binary:
    """Disassemble ``cubin`` with ``tool``; ``patterns`` are regular expressions of instructions by name."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (_asked(tool, option, file.name) for option in ("-res-usage", "-sass"))
    registers, stack = (re.search(rf"{name}:(\d+)", usage) for name in ("REG", "STACK"))
    assert registers and stack, usage[:200]
    counts = {name: len(re.findall(pattern, code)) for name, pattern in patterns.items()}
    return Binary(int(registers.group(1)), int(stack.group(1)), counts)


def _asked(tool: Path, option: str, path: str) -> str:
    return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout


def blocks_per_multiprocessor(arch: int, registers: int, shared_bytes: int, num_warps: int) -> int:
    """Return the number of resident blocks: registers come in units of 8 a thread, shared memory with 1 KiB more."""
    threads = 32 * num_warps
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    by_shared = SHARED_KIB[arch] * 1024 // (shared_bytes + 1024)
    return min(by_registers, by_shared, THREADS // threads, BLOCKS)


def faults(row: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why a configuration is unfit."""
    if row["spills"] or row["stack_bytes"]:
        yield "spills"
    if row["kernel"] in PRODUCTS and not row["tensor"]:
        yield "no tensor cores"
    if not row["blocks"]:
        yield "does not fit"


if __name__ == "__main__":
    main(sys.argv[1])
