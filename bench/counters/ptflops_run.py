"""Run ptflops with either of its backends."""

import re
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from io import StringIO

from ptflops import get_model_complexity_info
from torch import Tensor, nn

from headcount.bench.counters.base import ToolError
from headcount.bench.counters.run_context import one_line
from headcount.bench.trace.shapes import cache_shapes

_FAILURE = re.compile(r"the following exception: \n<class '(?:.*\.)?(\w+)'>: (.*)")


class _KeywordInputs(nn.Module):
    """Take the inputs by keyword, so that ptflops divides by no batch size, and pass them on by position.

    ptflops leaves bound methods on its root module, a reference cycle that would otherwise include the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        return self.model(*inputs.values())


def run(model: nn.Module, inputs: Mapping[str, Tensor], *, backend: str) -> tuple[int, str]:
    """Return the MACs of the whole batch and ptflops' report.

    Raises ToolError with the exception that ptflops printed if it returns (None, None).
    """
    report = StringIO()
    if backend == "pytorch":
        # an operation on meta may be the first to import it, and it would find the functions that ptflops replaces
        import_module("torch._dynamo")
    # Backend pytorch also counts the calls that torch's Python makes to compute a shape.
    remembered = cache_shapes(model) if backend == "aten" else nullcontext()
    with redirect_stdout(StringIO()) as printed, remembered:
        root = _KeywordInputs(model)
        macs, _ = get_model_complexity_info(
            root,
            (1,),
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _: inputs,
            ost=report,
            verbose=True,
            backend=backend,
        )
        # Free the model now, not at the next garbage collection.
        del root.model
    if macs is None:
        failures = _FAILURE.findall(printed.getvalue())
        raise ToolError(one_line(*failures[-1]) if failures else "it returned (None, None)")
    return macs, report.getvalue()
