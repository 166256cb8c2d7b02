"""``python -m bench.latency.compile``: every committed configuration of the Triton kernels, compiled without a GPU.

    python -m bench.latency.compile --arch 80 90 100                   registers, shared memory, spills, instructions
    python -m bench.latency.compile --kernel expert --format md  one kernel, compute capability 9.0
    python -m bench.latency.compile --arch 80 90 100 --format csv --out reports/records/kernels.csv

What is compiled is what the layers launch in bfloat16: their operators run on tensors without values, and a launch is
recorded instead of started. Triton keeps what it has compiled, by source, options and version: a run that was stopped
goes on, and a changed kernel alone is compiled anew.
Exit codes: 0 fine; 1 on compute capability 9.0 a configuration spills, does not fit, or multiplies matrices without
tensor cores; 2 wrong usage; 3 triton is not installed.
"""

import argparse
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headcount.bench.cli import Parser, run
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.isolated.cuobjdump import read_binary
from headcount.bench.render import emit, open_output
from headcount.bench.table import Column, Row, Section, Table
from headcount.models.kernels import triton_configs
from headcount.models.kernels.triton_configs import TABLE

PROG = "python -m bench.latency.compile"
JUDGED = 90
# KiB of shared memory of a multiprocessor; 1 KiB of each block is the system's (CUDA C++ programming guide, table 21+)
SHARED_KIB = {80: 164, 90: 228, 100: 228}
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32
INSTRUCTIONS = {
    "tensor": r"\b(?:HGMMA|HMMA|UTC\w*MMA)",
    "wide": r"\bLDG\.E\.128|\bLDGSTS\.E\S*\.128",
    "spills": r"\b(?:LDL|STL)\b",
}
# kernels that multiply matrices; the others move, select or add
PRODUCTS = ("route", "expert", "weight_grad", "mqa", "ragged")

COLUMNS = (
    Column("kernel", "kernel", width=12),
    Column("shape", "constants", width=48),
    Column("arch", "sm", kind="int", width=3),
    Column("registers", "registers", kind="int"),
    Column("shared_bytes", "shared", "KiB", kind="fixed", scale=1024, digits=1, width=6),
    Column("stack_bytes", "stack", "bytes", kind="int"),
    Column("spills", "spills", kind="int"),
    Column("tensor", "tensor-core", "instructions", kind="int"),
    Column("wide", "16-byte", "loads", kind="int"),
    Column("blocks", "blocks", "per SM", kind="int"),
    Column("verdict", "verdict", width=7),
    Column("source", "source", width=12),
    Column("triton", "triton", width=7),
)
TITLE = Table(
    "kernels",
    "Triton kernels as compiled",
    COLUMNS,
    (
        "Every configuration that the layers of bench/latency/launches.py launch in bfloat16, compiled ahead of time "
        "by triton without a GPU. Registers are of a thread, shared memory is of a block; the source is told by the "
        "sha256 of kernels and configurations. Regenerate: "
        "python -m bench.latency.compile --arch 80 90 100 --format csv --out reports/records/kernels.csv",
    ),
)


class Source(NamedTuple):
    """One kernel as it is specialised: types and constants of its arguments, and what is a multiple of 16."""

    kernel: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    num_warps: int
    num_stages: int

    @property
    def shape(self) -> str:
        """The constants that tell one configuration from another."""
        quiet = ("PRECISION", "E_PAD", "K_PAD", "D_PAD", "RENORMALISE")
        named = [(k, v) for k, v in self.constants if k.isupper() and k not in quiet and v is not False]
        words = [k.lower() if v is True else f"{k}{v}" for k, v in named]
        words += ["transposed"] * (("stride_wi", 1) in self.constants)
        return " ".join([*words, f"w{self.num_warps}", f"s{self.num_stages}"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = Parser(prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", type=int, choices=sorted(SHARED_KIB), default=[JUDGED])
    parser.add_argument("--kernel", nargs="+", choices=sorted(TABLE), default=sorted(TABLE), metavar="NAME")
    parser.add_argument("--format", choices=("text", "md", "csv"), default="text")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    if importlib.util.find_spec("triton") is None:
        raise EnvironmentMissing("triton is not installed; pip install 'headcount[gpu]' brings it")
    if triton_interprets():
        raise EnvironmentMissing("TRITON_INTERPRET is set, and what is interpreted is not compiled; unset it")
    wanted = [source for source in sources() if source.kernel in args.kernel]
    rows = (Row(compiled(source, arch)) for source in wanted for arch in args.arch)
    with open_output(args.out) as stream:
        (section,) = emit([Section(TITLE, rows)], args.format, stream)
    found = [row.values for row in section.rows]
    bad = [row for row in found if row["verdict"] != "ok" and row["arch"] == JUDGED]
    judged = sum(row["arch"] == JUDGED for row in found)
    print(f"{judged - len(bad)} of {judged} configurations are fit for compute capability 9.0", file=sys.stderr)
    return 1 if bad else 0


def triton_interprets() -> bool:
    """Whether kernels are run by the interpreter in this process."""
    import triton

    return triton.knobs.runtime.interpret


def digest() -> str:
    """Of the kernels' source and their table of configurations, which a table is no longer of once they change."""
    folder = Path(triton_configs.__file__).parent
    texts = [(folder / f"{name}.py").read_bytes() for name in ("triton_attention", "triton_configs", "triton_rows")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def sources() -> list[Source]:
    """Configurations that the calls of :mod:`headcount.bench.latency.launches` need; of those that differ only in which
    sizes are multiples of 16, the one with most."""
    from headcount.bench.latency.launches import launches

    found = sorted({specialised(launched) for launched in launches()}, key=lambda s: len(s.divisible))
    return sorted({(s.kernel, s.shape): s for s in found}.values(), key=lambda s: (s.kernel, s.shape))


def specialised(launched) -> Source:
    """A launch as triton specialises it when it runs: sizes of 1 are constants, multiples of 16 are known."""
    kernel, arguments, constants, launch = launched
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
    import torch

    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int):
        return "i32"
    names = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.uint8: "*u8"}
    return names[value.dtype]


def compiled(source: Source, arch: int) -> dict[str, Any]:
    """The row of one configuration on one architecture."""
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


def blocks_per_multiprocessor(arch: int, registers: int, shared_bytes: int, num_warps: int) -> int:
    """How many blocks are resident at once: registers come in units of 8 a thread, shared memory with 1 KiB more."""
    threads = 32 * num_warps
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    by_shared = SHARED_KIB[arch] * 1024 // (shared_bytes + 1024)
    return min(by_registers, by_shared, THREADS // threads, BLOCKS)


def faults(row: dict[str, Any]) -> Iterator[str]:
    """What makes a configuration unfit."""
    if row["spills"] or row["stack_bytes"]:
        yield "spills"
    if row["kernel"] in PRODUCTS and not row["tensor"]:
        yield "no tensor cores"
    if not row["blocks"]:
        yield "does not fit"


if __name__ == "__main__":
    sys.exit(run(PROG, main))
