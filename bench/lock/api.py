"""A lock in a program of one's own: a module at hand is counted, and its count written or held against a file."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headcount.bench.contractions.count import REPORT, ContractionCount, Formula
from headcount.bench.count import count_macs
from headcount.bench.isolated.module_answer import inputs_of, parameters
from headcount.bench.render import emit, open_output
from headcount.bench.saved import file
from headcount.bench.saved.saved import WRITTEN_ELEMENTWISE, Saved, parameters_of
from headcount.bench.saved.sections import LOCKED, equal, sections, summary


class CostChanged(AssertionError):
    """A module does not cost what its lock says; the message is a table of what changed, by name."""


@dataclass(frozen=True)
class Lock:
    """What a module costs, to be written to a file or held against one."""

    saved: Saved

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the counted pass."""
        return self.saved.macs

    @property
    def params(self) -> int:
        """Parameters, each tensor once."""
        return self.saved.params

    def write(self, path: str | Path) -> None:
        """Write the lock's file, whose folder must be there. UsageError where it cannot be written."""
        with open_output(path) as stream:
            stream.write(file.text(self.saved))

    def check(self, path: str | Path) -> None:
        """Raise CostChanged, an AssertionError, unless the file locks just this: terms, parameters, unknown operations.

        UsageError for a file that is not there or no lock.
        """
        locked = file.read(path)
        if not equal(locked, self.saved):
            table = io.StringIO()
            emit(sections(locked, self.saved, LOCKED), "text", table)
            raise CostChanged(f"{path}: {summary(locked, self.saved)}\n\n{table.getvalue()}")


def lock(
    module: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    training: bool = False,
    allow_uncounted: bool = False,
    formulas: Mapping[str, Formula] | None = None,
    elementwise: str = REPORT,
) -> Lock:
    """Count ``module(*inputs, **kwargs)`` as ``count_macs`` does: every contraction and parameter, by name.

    ``hc.lock(model, x).write("macs.lock")`` once, ``hc.lock(model, x).check("macs.lock")`` from then on: integers are
    equal or they are not. A file that a program wrote remembers no module, so ``headcount lock --check`` wants
    ``--module`` for it. Raises what ``count_macs`` does.
    """
    counted = count_macs(
        module, *inputs, kwargs=kwargs, backward=backward, training=training,
        allow_uncounted=allow_uncounted, formulas=formulas, elementwise=elementwise,
    )  # fmt: skip
    return Lock(
        Saved(
            name=type(module).__name__,
            terms=_terms(counted),
            parameters=parameters_of(parameters(module)),
            included=counted.included,
            uncounted=tuple(line.text() for line in counted.uncounted),
            inputs=tuple(inputs_of(inputs, dict(kwargs or {}))),
            versions=file.versions(),
        )
    )


def _terms(counted: ContractionCount) -> tuple:
    """All contractions: those written elementwise stand in the ledger where they are included."""
    written = () if counted.included else counted.elementwise_ledger
    return (*counted.ledger, *(entry for entry in written if entry.kind == WRITTEN_ELEMENTWISE))
