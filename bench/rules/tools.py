"""The rules by counter."""

from headcount.bench.rules import fvcore_jit, ptflops_aten, ptflops_pytorch, torch_dispatch

RULES = {rules.NAME: rules for rules in (ptflops_pytorch, ptflops_aten, fvcore_jit, torch_dispatch)}
NAMES = tuple(name for rules in RULES.values() for name in rules.NAMES)
"""The Python names whose calls a trace must hold for all of them."""
