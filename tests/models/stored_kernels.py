"""List the kernels of stored latencies by the code that was measured: python -m tests.models.stored_kernels FOLDER

Each record names its commit. The packages of that commit are taken from git into a temporary folder, where each
implementation runs once on meta tensors. FOLDER/kernels.csv then holds the kernels that ran, whatever became of them.
Rows of a commit that are listed already are kept.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bench", "formulas", "models", "headcount")
RECORDER = ("bench/performance", "bench/counting/kernel_recorder.py")
"""What records kernels, as it is today; its rules of products are those of the commit."""
FIELDS = ("commit", "case", "kernel", "kind", "bytes", "macs", "core", "sorted", "source", "times")


def main(folder: Path) -> None:
    """List the kernels of every record of ``folder`` whose commit and case are not listed."""
    from headcount.bench.latency.efficiencies import KERNELS, stored_rows

    path = folder / KERNELS
    listed = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    known = {(row["commit"], row["case"]) for row in listed}
    wanted: dict[str, dict[str, Any]] = {}
    for row in stored_rows(folder)[0]:
        record = row.record
        commit = record.environment["commit"][:10]
        if (commit, row.key) not in known:
            of_commit = wanted.setdefault(commit, {})
            of_commit[row.key] = [
                *(record.subject, record.name, record.seq_len, record.batch_size, record.dtype, record.which),
                *(record.device, record.routing, record.layer, record.implementation),
            ]
    for commit, cases in wanted.items():
        listed += _list_at(commit, cases)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)


def _list_at(commit: str, cases: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the kernels of ``cases`` as the packages of ``commit`` launch them."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, *PACKAGES], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        shutil.rmtree(Path(folder, "bench", "performance"), ignore_errors=True)
        Path(folder, "bench", "counting").mkdir(exist_ok=True)
        for own in RECORDER:
            copy = shutil.copytree if Path(ROOT, own).is_dir() else shutil.copy
            copy(ROOT / own, Path(folder, own))
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        program = [sys.executable, str(Path(__file__).resolve()), "--list", commit]
        done = subprocess.run(
            program, input=json.dumps(cases), cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE
        )
    return json.loads(done.stdout)


def _list(commit: str, cases: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each kernel, equal ones once with their number; one without a kernel where none is known."""
    for key, (*how, layer, implementation) in cases.items():
        for kernel, times in _count(_kernels(how, layer, implementation)).items():
            yield dict(zip(FIELDS, (commit[:10], key, *kernel, times), strict=True))


def _kernels(how: list[Any], layer: str, implementation: str) -> list[Any]:
    import torch

    import headcount
    from headcount.bench.counting.kernel_recorder import layer_kernels, model_kernels
    from headcount.bench.latency.runs import loss
    from headcount.bench.latency.timing_cases import TimingCase

    assert Path(headcount.__file__).is_relative_to(Path.cwd()), headcount.__file__
    case = TimingCase(*how)
    config = next(spec.config for spec in case.impls(any_device=True) if spec.name == layer)
    dtype = getattr(torch, case.dtype)
    if case.subject == "model":
        lengths = case.at_lengths(config).lengths
        return model_kernels(config, implementation, lengths, dtype, case.which, loss)
    shape = case.batch_size, case.new_len
    return layer_kernels(config, implementation, shape, case.seq_len, dtype, case.which)


def _count(kernels: list[Any]) -> dict[tuple, int]:
    found: dict[tuple, int] = {}
    for one in kernels:
        core = "" if one.core is None else " ".join(map(str, one.core))
        key = one.name, one.kind, one.bytes, one.macs, core, one.sorted, one.source
        found[key] = found.get(key, 0) + 1
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print(json.dumps(list(_list(sys.argv[2], json.load(sys.stdin)))))
    else:
        main(Path(sys.argv[1]))
