"""Run a module on several ranks of a gloo process group, by torchrun or by forks of a process with torch."""

import subprocess
import sys

from tests.warm import run_ranks

TORCHRUN = "torch.distributed.run"
TIMEOUT_S = 300


def run_by_torchrun(ranks, *words):
    """Run ``python -m words`` on each rank by torchrun; return its exit code and output."""
    command = [sys.executable, "-W", "ignore", "-m", TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), "-m"]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=TIMEOUT_S)


def run_by_forks(forks, folder, ranks, *words):
    """Run ``python -m words`` on each rank, in processes that ``forks``, a tests.warm.Context, starts."""
    out, err = folder / "out", folder / "err"
    code = run_ranks(forks, ranks, words, out, err, TIMEOUT_S)
    return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())
