"""Measure the activations of a case (bench.trace.memory).

On meta the numbers are those of the CPU because gathered rows are split as on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil

from torch import nn
from torch.utils.checkpoint import checkpoint

from headcount.bench.case import Case
from headcount.bench.trace.memory import Activations, measure_activations
from headcount.bench.trace.shapes import cache_shapes
from headcount.models import experts
from headcount.models.build import build, example_inputs
from headcount.models.configs.base import ConfigError

MAX_CHUNKS = 20_000
"""Chunks of gathered matrices in one measurement; more would take minutes."""


def measure(
    case: Case, *, training: bool, element_bytes: int, device: str = "meta", recompute: bool = False
) -> Activations:
    """Return the bytes of activations, without inputs, parameters, buffers and the output's gradient.

    A training step is a forward in training mode and a backward into the parameters, without auxiliary losses or
    masks. The model runs in float32, and every floating-point number counts ``element_bytes``. With ``recompute``
    every repeated layer keeps its input only, and runs again in backward. Raises ConfigError for a case that cannot
    run or would take minutes.
    """
    case.check_runs()
    model = build(case.config, device=device, initialise=False)
    inputs = example_inputs(case.config, case.lengths, device=device)
    if recompute:
        _recompute_layers(model)
    with _split_rows(element_bytes), cache_shapes(model):
        return measure_activations(model, (), inputs, training=training, element_bytes=element_bytes)


def _recompute_layers(model: nn.Module) -> None:
    """Let each element of the innermost lists of modules, the repeated layers, run under checkpoint."""
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            if not any(isinstance(part, nn.ModuleList) for part in layer.modules()):
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


@contextmanager
def _split_rows(element_bytes: int) -> Iterator[None]:
    """Split gathered rows on every device as the CPU splits those of numbers of ``element_bytes``."""
    chunks = 0

    def rows_per_chunk(rows: int, gathered: int) -> int:
        nonlocal chunks
        size = max(1, experts.GATHERED_BYTES // (gathered * element_bytes))
        chunks += ceil(rows / size)
        if chunks > MAX_CHUNKS:
            raise ConfigError(f"the reference gathers matrices in more than {MAX_CHUNKS:,} chunks")
        return size

    token = experts.CHUNK_RULE.set(rows_per_chunk)
    try:
        yield
    finally:
        experts.CHUNK_RULE.reset(token)
