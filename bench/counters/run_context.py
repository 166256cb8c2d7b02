"""Run a counter and restore the model, the standard streams and autograd afterwards."""

import io
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from importlib.metadata import version
from types import ModuleType

import numpy
import torch
from torch import Tensor, nn

from headcount.bench.counters.base import CounterError, CounterResult, ToolError
from headcount.bench.trace.names import keep_eager, patched, restore_training_flags, set_mode


def run_counter(tool: ModuleType, model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> CounterResult:
    """Return what the counter ``tool`` reports for one forward pass over the whole batch.

    ``inputs`` are forward's parameters in order. Raises CounterError.
    """
    with _run_context(model, tool.NAME, label):
        reported = tool.read(model, inputs)
    package = next(iter(tool.VERIFIED))
    device = next((tensor.device.type for tensor in inputs.values()), "cpu")
    return CounterResult(tool.NAME, version=_version(package), device=device, **{"tool": package, **reported})


@contextmanager
def _run_context(model: nn.Module, counter: str, label: str) -> Iterator[None]:
    """Set evaluation mode, disable gradients, and discard what is written to stdout and stderr.

    On leaving, each module has the training flag and the hooks that it had: ptflops' aten backend never
    removes its hooks, fvcore does not when the forward pass fails. Any exception becomes a CounterError.
    """
    printed = io.StringIO()
    hooks = [own for module in model.modules() for own in (module._forward_hooks, module._forward_pre_hooks)]
    before = [set(own) for own in hooks]
    try:
        with restore_training_flags(model), patched() as replaced:
            set_mode(model, training=False)
            keep_eager(replaced)
            # Not inference_mode: there ptflops' aten backend counts 0 for every nn.Linear.
            with torch.no_grad(), redirect_stdout(printed), redirect_stderr(printed):
                yield
    except Exception as error:
        reason = str(error) if isinstance(error, ToolError) else one_line(type(error).__name__, str(error))
        raise CounterError(f"{counter} did not count {label}: ", reason) from error
    finally:
        for own, keys in zip(hooks, before, strict=True):
            for key in set(own) - keys:
                del own[key]


def seed_generators() -> None:
    """Seed the generators of Python, numpy and torch. For commands, which own their process."""
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: in many small products a second thread mostly waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def one_line(kind: str, message: str) -> str:
    """Return an exception's type and the first line of its message, without addresses of objects."""
    lines = re.sub(r" at 0x[0-9a-f]+", "", message.strip()).splitlines()
    return f"{kind}: {lines[0].strip()}" if lines else kind


_version = cache(version)
