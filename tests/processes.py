"""Run a module on several ranks of a gloo process group, by torchrun or by forks of a process with torch."""

import subprocess
import sys

TORCHRUN = "torch.distributed.run"
TIMEOUT_S = 300


def run_by_torchrun(ranks, *words):
    """Run ``python -m words`` on each rank by torchrun; return its exit code and output."""
    command = [sys.executable, "-W", "ignore", "-m", TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), "-m"]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=TIMEOUT_S)


def run_by_forks(run, folder, ranks, *words):
    """Run ``python -m words`` on each rank, in forks that ``run`` of tests.warm.process starts."""
    out, err = folder / "out", folder / "err"
    with out.open("w") as out_file, err.open("w") as err_file:
        request = {"ranks": ranks, "words": words, "seconds": TIMEOUT_S}
        code = run(request, out_file.fileno(), err_file.fileno())
    return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())
