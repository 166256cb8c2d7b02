"""A campaign on a machine with torch and numpy alone, where an implementation breaks the device."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ABSENT = ("pandas", "ptflops", "fvcore", "sympy", "tabulate", "tqdm", "psutil", "matplotlib", "jinja2", "pynvml")
ABSENT += ("beartype", "jaxtyping")

CODE = """
import sys
sys.path.insert(0, {root!r})
# torch has imported by now what it needs of them
import torch._dynamo

torch.set_num_threads(1)
for name in [name for name in sys.modules if name.partition(".")[0] in {absent!r}]:
    del sys.modules[name]
# None makes an import fail
sys.modules.update(dict.fromkeys({absent!r}))

from headcount.bench.latency.__main__ import main
from tests.bench.latency.bare import small_campaign, small_peaks

small_peaks()
assert main({cell!r}) == 0
small_campaign()
sys.exit(main({argv!r}))
"""
CELL = "--layer mha-base --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1".split()


def test_campaign_with_torch_and_numpy_alone(tmp_path):
    argv = ["campaign", "--out-dir", str(tmp_path), "--tokens", "14", "--blocks", "2", "--commit", "abc"]
    code = CODE.format(root=str(ROOT), absent=ABSENT, argv=argv, cell=CELL)
    env = {name: value for name, value in os.environ.items() if name != "HEADCOUNT_LATENCY_STARTED"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr[-3000:]
    found = [json.loads(line) for line in (tmp_path / "latency.jsonl").read_text().splitlines()]
    statuses = {r["implementation"]: r["status"].partition(":")[0] for r in found if r["kind"] == "latency"}
    assert "nothing is missing" in done.stderr
    assert statuses.pop("loop") == "failed" and set(statuses.values()) == {"skipped"}
    assert done.stderr.count("continuing in a new process") == 2
    assert len([r for r in found if r["kind"] == "latency-check" and r["status"] != "agrees"]) == 2
