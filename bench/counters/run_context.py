"""Run a counter and restore the model, the standard streams and autograd afterwards."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.counters.base import CounterError, CounterResult
from headcount.bench.trace.names import keep_eager, patched, restore_training_flags, set_eval_mode


@contextmanager
def run_context(model: nn.Module, *, counter: str, label: str) -> Iterator[io.StringIO]:
    """Set evaluation mode, disable gradients, and redirect stdout and stderr to the stream that it yields.

    On leaving, each module has the training flag and the hooks that it had: ptflops' aten backend never
    removes its hooks, fvcore does not when the forward pass fails. Any exception becomes a CounterError.
    """
    printed = io.StringIO()
    hooks = [own for module in model.modules() for own in (module._forward_hooks, module._forward_pre_hooks)]
    before = [set(own) for own in hooks]
    try:
        with restore_training_flags(model), patched() as replaced:
            set_eval_mode(model)
            keep_eager(replaced)
            # Not inference_mode: there ptflops' aten backend counts 0 for every nn.Linear.
            with torch.no_grad(), redirect_stdout(printed), redirect_stderr(printed):
                yield printed
    except CounterError:
        raise
    except Exception as error:
        raise CounterError(counter, label, one_line(type(error).__name__, str(error))) from error
    finally:
        for own, keys in zip(hooks, before, strict=True):
            for key in set(own) - keys:
                del own[key]


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


def as_result(counter: str, tool: str, inputs: Mapping[str, Tensor], macs: int, **reported: Any) -> CounterResult:
    """Return what the distribution ``tool`` reported, with its installed version and the device of the inputs."""
    device = next((tensor.device.type for tensor in inputs.values()), "cpu")
    return CounterResult(counter, tool, _version(tool), device, macs, **reported)


_version = cache(version)
