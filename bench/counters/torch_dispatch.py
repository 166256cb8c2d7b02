"""PyTorch's own counter, torch.utils.flop_counter.FlopCounterMode: a dispatch mode that counts FLOPs.

Places are in the torch 2.13 sources.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench.counters.reading import Reading, added_by_kind, macs_from_flops, unknown_kind
from headcount.bench.counters.undisturbed import arguments, device_of, undisturbed
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size

NAME = "torch"
DEFAULT_DEVICE = "meta"
VERIFIED = {"torch": "2.13"}


def count(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
    """One forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    MACs are its FLOPs / 2. It cannot say what it did not count: an operator without a formula is 0 without a
    warning. ``by_module`` holds only modules with FLOPs. Raises CounterError.
    """
    with undisturbed(model, counter=NAME, label=label):
        with FlopCounterMode(display=False) as mode:
            model(*arguments(model, inputs))
        counts = mode.get_flop_counts()
        by_operator = counts.pop("Global", {})
        return Reading(
            counter=NAME,
            tool="torch",
            version=torch.__version__,
            backend="dispatch",
            device=device_of(inputs),
            macs=macs_from_flops(mode.get_total_flops()),
            params=None,
            by_module={
                _path(name, type(model).__name__): macs_from_flops(sum(flops.values()))
                for name, flops in counts.items()
            },
            by_operator={str(operator): macs_from_flops(flops) for operator, flops in by_operator.items()},
            uncounted=None,
        )


def _path(name: str, root: str) -> str:
    """A module path without the root's class name (module_tracker.py:90-99)."""
    return "" if name == root else name.removeprefix(f"{root}.")


def bills(entry: Entry) -> int:
    """How many times a reading holds ``entry.size``; ValueError for an unknown kind.

    linear, conv, expert_linear,  1  mm, addmm, bmm, convolution: torch/utils/flop_counter.py:76-180, 729-738
      scores, values
    bias                          0  addmm and convolution leave it out: :88-90, 131-178
    every other kind              0  no other operator that we use is in the table, :729-751
    """
    if entry.kind in MAC_KINDS:
        return 1
    free = ("bias", "expert_bias", "elementwise", "rope", "softmax", "activation", "pooling", "embedding", "norm")
    if entry.kind in (*free, "rms_norm"):
        return 0
    raise unknown_kind(NAME, entry)


def predict(ledger: Ledger, device: str) -> Size:
    """The reading that the rules give for a ledger, the same on every device."""
    return ledger.billed(bills)


def additions(ledger: Ledger, device: str) -> dict[str, Size]:
    """What a reading adds to the multiply-accumulates, by kind, the same on every device."""
    return added_by_kind(ledger, bills)
