"""What the processes of user code import, for the server whose forks they are: see tests/warm.py."""

import atexit
import gc
import json
import tempfile
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest  # noqa: F401
import torch
from torch.fx.experimental.symbolic_shapes import uninteresting_files

from headcount.bench.closed_form.derivation import derive
from headcount.bench.counters import registry
from headcount.bench.derive.symbolic import count_symbolic
from headcount.bench.targets.target import Target
from tests.bench.closed_form.families import config
from tests.torchvision_import import import_models

# a fork has no other threads
torch.set_num_threads(1)
for name in (
    "closed_form.activations",
    "counting.module",
    "counting.rank",
    "derive.derivation",
    "latency.time_targets",
):
    import_module(f"headcount.bench.{name}")
for name in registry.tools():
    registry.counter(name)
# torch imports further modules when this function is first called, and sympy in the first run with symbols
uninteresting_files()
count_symbolic(lambda n: (torch.nn.Linear(n, 3), (torch.ones(n, n),), {}), {"n": 7}, {})
if find_spec("transformers"):
    with suppress(ModuleNotFoundError):
        import_models()
    # transformers and torch import what a decoder needs when one is first counted: no fork does it again
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config("llama") | {"num_hidden_layers": 1}))
        derive(Target(str(path), lengths={"batch_size": 1, "seq_len": 8}))
gc.collect()
gc.freeze()
# triton prints what is not freed at the end of Python
atexit.register(gc.unfreeze)
