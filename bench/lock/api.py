"""``hc.lock``: count a module in a program, and write the count to a lock or check it against one."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from headcount.bench.count import count_macs
from headcount.bench.env import counting_libraries
from headcount.bench.isolated.count_module import inputs_of, parameters
from headcount.bench.render import emit, open_output
from headcount.bench.snapshot import file
from headcount.bench.snapshot.difference import equal, summary
from headcount.bench.snapshot.sections import LOCKED, sections
from headcount.bench.snapshot.snapshot import CountSnapshot, parameters_of, terms_of


class CostChanged(AssertionError):
    """The count of a module is not as locked; the message is a table of the changes, by name."""


class Lock(CountSnapshot):
    """The count of a module, to write to a file or to check against one."""

    def write(self, path: str | Path) -> None:
        """Write the lock to ``path``, in an existing folder. Raises UsageError where it cannot be written."""
        with open_output(path) as stream:
            stream.write(file.text(self))

    def check(self, path: str | Path) -> None:
        """Raise CostChanged, an AssertionError, unless terms, parameters and unsupported operations are as locked.

        Raises UsageError for a file that is missing or no lock.
        """
        locked = file.read(path)
        if not equal(locked, self):
            table = io.StringIO()
            emit(sections(locked, self, LOCKED), "text", table)
            raise CostChanged(f"{path}: {summary(locked, self)}\n\n{table.getvalue()}")


def lock(module: nn.Module, *inputs: Any, kwargs: Mapping[str, Any] | None = None, **options: Any) -> Lock:
    """Count ``module(*inputs, **kwargs)`` as ``count_macs`` does: every contraction and parameter, by name.

    Call ``hc.lock(model, x).write("macs.lock")`` once and ``hc.lock(model, x).check("macs.lock")`` from then on.
    A lock written by a program names no module, so ``headcount lock --check`` needs ``--module`` for it.

    Args:
        module: the module to count.
        inputs: its positional inputs.
        kwargs: its keyword inputs.
        options: ``backward``, ``training``, ``allow_unsupported``, ``formulas``, ``formula_set`` and ``elementwise`` of
            ``count_macs``.

    Raises:
        UnsupportedError, ElementwiseError: as ``count_macs``.
    """
    counted = count_macs(module, *inputs, kwargs=kwargs, **options)
    return Lock(
        name=type(module).__name__,
        terms=terms_of(counted.ledger, counted.elementwise_ledger),
        parameters=parameters_of(parameters(module)),
        included=counted.included,
        unsupported=tuple(line.text() for line in counted.unsupported),
        inputs=tuple(inputs_of(inputs, dict(kwargs or {}))),
        versions=file.versions(counting_libraries()),
    )
