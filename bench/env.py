"""Describe the environment of a measurement: machine, versions, commit and command."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.errors import EnvironmentMissing, UsageError

PACKAGES = ("torch", "triton", "ptflops", "fvcore", "numpy", "pytest-benchmark")
FLAGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")


def machine() -> dict[str, Any]:
    """Return CPU, operating system and package versions; None where unknown."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": versions(PACKAGES),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each of these packages that is installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def counting_versions() -> dict[str, str]:
    """Return the versions of headcount, torch without its build, Python, and libraries that decide what torch runs.

    opt_einsum orders the products of an einsum of three or more operands; transformers holds the code of models.
    """
    import torch

    einsum = torch.backends.opt_einsum
    used = {"opt_einsum": einsum.is_available() and einsum.enabled, "transformers": "transformers" in sys.modules}
    return {
        "headcount": headcount.__version__,
        "torch": version("torch").partition("+")[0],
        "python": ".".join(platform.python_version_tuple()[:2]),
        **versions(name for name, is_used in used.items() if is_used),
    }


def environment(device: str = "cpu", argv: list[str] | None = None) -> dict[str, Any]:
    """Return the machine, the torch device with its settings, the commit, the time and the command."""
    import torch

    return {
        **machine(),
        "device": device_name(device),
        "device_type": device,
        "threads": torch.get_num_threads(),
        "gpu": gpu() if device == "cuda" else None,
        "tf32": torch.backends.cuda.matmul.allow_tf32 if device == "cuda" else None,
        "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
        **commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": argv if argv is not None else [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def device_name(device: str) -> str:
    """Return the processor's name: the GPU's on cuda, else the CPU's with its number of cores.

    Raises EnvironmentMissing where there is no GPU.
    """
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EnvironmentMissing("no CUDA device on this machine")
        return torch.cuda.get_device_name()
    return f"{_cpu() or platform.machine()}, {os.cpu_count()} cores"


def gpu() -> dict[str, Any]:
    """Return the current GPU: memory, multiprocessors, capability, runtime and driver."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": _driver(),
    }


def commit() -> dict[str, Any]:
    """Return the ``commit`` of the checkout that this runs from, and whether tracked files differ from it (``dirty``).

    None where it is installed, and for the commit where there is none.
    """
    # git would otherwise write the index, and leave its lock where the disk is full
    words = "--no-optional-locks status --porcelain=v2 --branch --untracked-files=no".split()
    if headcount.CHECKOUT:
        with suppress(EnvironmentMissing, UsageError):
            first, *others = run_git(*words, folder=headcount.CHECKOUT).decode(errors="replace").splitlines()
            found = first.removeprefix("# branch.oid ").replace("(initial)", "") or None
            return {"commit": found, "dirty": any(not line.startswith("#") for line in others)}
    return {"commit": None, "dirty": None}


def run_git(*words: str, folder: Path) -> bytes:
    """Return what git prints in ``folder``.

    Raises UsageError with the first line of git's error, EnvironmentMissing without git.
    """
    try:
        done = subprocess.run(["git", *words], capture_output=True, cwd=folder)
    except OSError as error:
        raise EnvironmentMissing(f"git cannot be run in {folder}: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(lines[0] if lines else "failed without a message")
    return done.stdout


def _cpu() -> str | None:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return platform.processor() or None


def _driver() -> str | None:
    """Return the version of the GPU's driver; None where pynvml or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlSystemGetDriverVersion()
    except Exception:
        return None
