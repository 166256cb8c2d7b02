"""Measure the activations of a case (bench.trace.memory).

On meta the numbers are those of the CPU because gathered rows are split as on the CPU.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import ceil

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from headcount.bench.case import Case, Config
from headcount.bench.trace.memory import Activations, FusedAttention, measure_activations
from headcount.bench.trace.shapes import cache_shapes
from headcount.models import experts
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError, Form
from headcount.models.kernels.selection import AUTO, Selectable

MAX_CHUNKS = 20_000
"""Chunks of gathered matrices in one measurement; more would take minutes."""
DTYPE = torch.bfloat16
"""The type of a run, in which rows that are grouped by expert have shapes on meta."""


def measure(
    case: Case,
    *,
    training: bool,
    element_bytes: int,
    device: str = "meta",
    recompute: bool = False,
    impl: str = AUTO,
) -> Activations:
    """Return the bytes of activations and gradients, without inputs, parameters, buffers and the output's gradient.

    A training step is a forward in training mode and a backward into the parameters, without auxiliary losses or
    masks. Every floating-point number counts ``element_bytes``. With ``recompute`` every repeated layer keeps its input
    only, and runs again in backward. ``impl``: the implementation of the layers; ``auto`` is the one to train with.
    Raises ConfigError for a case that cannot run or would take minutes.
    """
    case.check_runs()
    model = build(case.config, device=device, dtype=DTYPE, initialise=False, impl=impl)
    inputs = example_inputs(case.config, case.lengths, device=device, dtype=DTYPE)
    if recompute:
        _recompute_layers(model)
    with _split_rows(element_bytes), cache_shapes(model):
        return measure_activations(model, (), inputs, training=training, element_bytes=element_bytes)


def implementations(config: Config) -> list[str]:
    """Return the implementation that is measured of each kind of layer of a model, as "mha fused"."""
    model = build(config, device="meta", dtype=DTYPE, initialise=False, impl=AUTO)
    query = torch.empty(1, 1, 1, device="meta", dtype=DTYPE)
    found = []
    for layer in model.modules():
        if isinstance(layer, Selectable):
            form = "ideal " if getattr(layer.config, "form", None) is Form.IDEAL else ""
            found.append(f"{form}{layer.config.variant} {layer.automatic(query)}")
    return list(dict.fromkeys(found))


def _recompute_layers(model: nn.Module) -> None:
    """Let each element of the innermost lists of modules, the repeated layers, run under checkpoint."""
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            if not any(isinstance(part, nn.ModuleList) for part in layer.modules()):
                options = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": _contexts}
                layer.forward = partial(checkpoint, layer.forward, **options)


def _contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return the contexts of a layer's run and of its run in the backward pass, which lacks that of the first."""
    return nullcontext(), FusedAttention()


@contextmanager
def _split_rows(element_bytes: int) -> Iterator[None]:
    """Split gathered rows on every device as the CPU splits those of numbers of ``element_bytes``."""
    chunks = 0

    def rows_per_chunk(rows: int, gathered: int) -> int:
        nonlocal chunks
        size = max(1, experts.GATHERED_BYTES // (gathered * element_bytes))
        chunks += ceil(rows / size)
        if chunks > MAX_CHUNKS:
            raise ConfigError(f"the layers gather matrices in more than {MAX_CHUNKS:,} chunks")
        return size

    token = experts.CHUNK_RULE.set(rows_per_chunk)
    try:
        yield
    finally:
        experts.CHUNK_RULE.reset(token)
