"""Timing works with torch and numpy as the only packages."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ABSENT = ("pandas", "ptflops", "fvcore", "sympy", "tabulate", "psutil", "matplotlib", "pynvml")
ABSENT += ("beartype", "jaxtyping")
CODE = """
import sys
sys.path.insert(0, {root!r})
# torch imports some of them itself
import torch._dynamo

for name in [name for name in sys.modules if name.partition(".")[0] in {absent!r}]:
    del sys.modules[name]
# importing a module that is None fails
sys.modules.update(dict.fromkeys({absent!r}))
from headcount.bench.latency import __main__ as latency

latency.replace_jaxtyping()
from headcount.bench.latency import session

session.SIDE["cpu"], session.COPIED["cpu"] = 64, 4096
sys.exit(latency.main({argv!r}))
"""


def test_layer_is_timed_with_torch_and_numpy_alone(tmp_path):
    argv = "--layer moa-8K8E128D --seq-len 2 --tokens 2 --pass forward --blocks 1 --threads 1 --out-dir out".split()
    code = CODE.format(root=str(ROOT), absent=ABSENT, argv=argv)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in (tmp_path / "out" / "latency.jsonl").read_text().splitlines()]
    assert found and {one["status"] for one in found} == {"timed"}
    assert ", 1 thread; 1 block: a smoke test" in " ".join(done.stdout.split())
