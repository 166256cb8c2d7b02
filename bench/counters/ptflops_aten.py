"""ptflops, backend ``aten``: a dispatch mode with six operators. Places are in the ptflops 0.7.5 sources."""

import re
from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn

from headcount.bench.counters import ptflops_run
from headcount.bench.counters.reading import Reading, added_by_kind, unknown_kind
from headcount.bench.counters.undisturbed import device_of
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size

NAME = "ptflops-aten"
DEFAULT_DEVICE = "meta"
VERIFIED = {"ptflops": "0.7.5", "torch": "2.13"}

_ZERO_OP = re.compile(r"^Warning: (\S+) operation is treated as a zero-op$", re.MULTILINE)
_GLOBAL = re.compile(r"^Module:  Global\n((?:\S+: \d+ Mac\n)*)", re.MULTILINE)


def count(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
    """One forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    ``params`` are the trainable ones (aten_engine.py:113). ``by_operator`` and ``uncounted`` are read from
    what ptflops prints (:67-77, :96). Raises CounterError.
    """
    macs, params, report = ptflops_run.run(model, inputs, backend="aten", counter=NAME, label=label)
    rows = [line.split(": ") for block in _GLOBAL.findall(report) for line in block.splitlines()]
    return Reading(
        counter=NAME,
        tool="ptflops",
        version=ptflops_run.VERSION,
        backend="aten",
        device=device_of(inputs),
        macs=macs,
        params=params,
        by_module=None,
        by_operator={name: int(number.removesuffix(" Mac")) for name, number in rows},
        uncounted=dict(Counter(_ZERO_OP.findall(report))),
    )


def bills(entry: Entry) -> int:
    """How many times a reading holds ``entry.size``; ValueError for an unknown kind.

    linear, conv, expert_linear,  1  they arrive as mm, addmm, bmm, convolution: aten_ops.py:109-116
      scores, values
    bias                          1  in addmm and convolution, :51 and :93; a nn.Linear reaches addmm where its
                                     input is 2-D or contiguous
    every other kind              0  no other operator is in the table
    """
    if entry.kind in MAC_KINDS or entry.kind == "bias":
        return 1
    free = ("expert_bias", "elementwise", "rope", "softmax", "activation", "embedding", "norm", "rms_norm", "pooling")
    if entry.kind in free:
        return 0
    raise unknown_kind(NAME, entry)


def predict(ledger: Ledger, device: str) -> Size:
    """The reading that the rules give for a ledger, the same on every device."""
    return ledger.billed(bills)


def additions(ledger: Ledger, device: str) -> dict[str, Size]:
    """What a reading adds to the multiply-accumulates, by kind, the same on every device."""
    return added_by_kind(ledger, bills)
