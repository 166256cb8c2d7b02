"""What the processes of user code import, for the server whose forks they are: see tests/warm.py."""

import atexit
import gc
from importlib import import_module

import pytest  # noqa: F401
from torch.fx.experimental.symbolic_shapes import uninteresting_files

from headcount.bench.counters import registry

for name in ("counting.module", "counting.rank", "derive.derivation", "latency.time_targets"):
    import_module(f"headcount.bench.{name}")
for name in registry.tools():
    registry.counter(name)
# torch imports further modules when this function is first called
uninteresting_files()
gc.collect()
gc.freeze()
# triton prints what is not freed at the end of Python
atexit.register(gc.unfreeze)
