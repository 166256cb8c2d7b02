"""A GPU machine has torch and numpy: a cell and a campaign need no more, and it goes on by itself in a new process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ABSENT = ("pandas", "ptflops", "fvcore", "sympy", "tabulate", "tqdm", "psutil", "matplotlib", "jinja2", "pynvml")
ABSENT += ("beartype", "jaxtyping")

CODE = """
import sys
sys.path.insert(0, {root!r})
# what torch itself needs of them it has by now
import torch._dynamo

torch.set_num_threads(1)
for name in [name for name in sys.modules if name.partition(".")[0] in {absent!r}]:
    del sys.modules[name]
# None is what importing ends at
sys.modules.update(dict.fromkeys({absent!r}))

from headcount.bench.latency.__main__ import main
from tests.bench.latency.bare import small_campaign, small_peaks

small_peaks()
{before}
small_campaign({die})
sys.exit(main({argv!r}))
"""
CELL = "--layer mha-base --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1".split()


def campaign(tmp_path, die, before=""):
    argv = ["campaign", "--out-dir", str(tmp_path), "--tokens", "14", "--blocks", "2", "--commit", "abc"]
    code = CODE.format(root=str(ROOT), absent=ABSENT, argv=argv, die=die, before=before)
    env = {name: value for name, value in os.environ.items() if name != "HEADCOUNT_LATENCY_STARTED"}
    return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("die", [False, True], ids=["well", "after an error that stays"])
def test_a_cell_and_a_campaign_on_a_machine_with_torch_and_numpy_alone(die, tmp_path):
    # a process that another one goes on from begins at its campaign
    done = campaign(tmp_path, die, before="" if die else f"assert main({CELL}) == 0")
    assert done.returncode == (1 if die else 0), done.stderr[-3000:]
    assert die or "mha-base" in done.stdout
    found = [json.loads(line) for line in (tmp_path / "latency.jsonl").read_text().splitlines()]
    rows = [r for r in found if r["kind"] == "latency"]
    assert "nothing is missing" in done.stderr and len({r["cell"] for r in rows}) == 1
    failed = {(r["implementation"], r["status"].partition(":")[0]) for r in rows if r["status"] != "timed"}
    assert failed == ({("loop", "failed")} if die else set())
    assert done.stderr.count("continuing in a new process") == die
    is_lost = [r for r in found if r["kind"] == "latency-check" and r["status"] != "agrees"]
    assert len(is_lost) == (2 if die else 0)
