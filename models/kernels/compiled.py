"""The plain implementations as one graph each of torch.compile: what a user of torch would time first.

MHA and MoH by torch's fused attention with every head computed, MoA with every expert computed.
"""

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import nn

from headcount.models import mha as dense
from headcount.models import moh as heads
from headcount.models.attention import Inputs
from headcount.models.kernels.dense_all import dense_all
from headcount.models.shapes import Queries


def _run(plain: Callable, layer: nn.Module, inputs: Inputs) -> Queries:
    # nothing runs on meta, and a graph that is traced already needs none of its own
    if inputs.query.is_meta or torch.compiler.is_compiling():
        return plain(layer, inputs)
    # torch would trace the code of a mode into the graph
    with torch._C.DisableTorchFunction():
        return _compile(plain)(layer, inputs)


@cache
def _compile(plain: Callable) -> Callable:
    # as one graph, torch raises where it would run the layer uncompiled
    return torch.compile(lambda layer, inputs: plain(layer, inputs), fullgraph=True, dynamic=False)


mha = partial(_run, dense.fused)
moh = partial(_run, heads.fused)
moa = partial(_run, dense_all)
