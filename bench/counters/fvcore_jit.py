"""fvcore: the graph of a ``torch.jit`` trace. Places are in the fvcore 0.1.5 sources."""

import warnings
from collections.abc import Mapping
from importlib.metadata import version

from fvcore.nn import FlopCountAnalysis, parameter_count
from torch import Tensor, nn

from headcount.bench.counters.reading import Reading, added_by_kind, unknown_kind, whole
from headcount.bench.counters.undisturbed import arguments, device_of, undisturbed
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size

NAME = "fvcore"
DEFAULT_DEVICE = "meta"
VERIFIED = {"fvcore": "0.1.5.post20221221", "torch": "2.13"}


def count(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
    """One forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    Its flops are multiply-accumulates (flop_count.py:56). ``params`` are all parameters. ``uncounted`` are
    the operators without a handle; those it knows to be free (jit_analysis.py:28-87) are not among them.
    Raises CounterError, for instance for a convolution on meta, which torch 2.13 cannot trace.
    """
    with undisturbed(model, counter=NAME, label=label), warnings.catch_warnings():
        # The trace compiles small functions, which torch has deprecated.
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        analysis = FlopCountAnalysis(model, arguments(model, inputs))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        return Reading(
            counter=NAME,
            tool="fvcore",
            version=version("fvcore"),
            backend="jit",
            device=device_of(inputs),
            macs=whole(analysis.total()),
            params=whole(parameter_count(model)[""]),
            by_module={path: whole(macs) for path, macs in analysis.by_module().items()},
            by_operator={name: whole(macs) for name, macs in analysis.by_operator().items()},
            uncounted=dict(analysis.unsupported_ops()),
        )


def bills(entry: Entry) -> int:
    """How many times a reading holds ``entry.size``; ValueError for an unknown kind.

    linear, conv, expert_linear,  1  aten::linear, _convolution, bmm, matmul: jit_handles.py:99-173, 217-227
      scores, values
    norm                          5  aten::layer_norm with a scale, else 4: jit_handles.py:230-248
    pooling                       1  aten::adaptive_avg_pool2d, per element of the input: flop_count.py:42
    bias                          0  aten::linear and _convolution leave it out: :99-110, 129-173
    every other kind              0  ignored (aten::relu) or listed as unsupported (add, mul, softmax, gelu,
                                     silu, rsqrt, embedding): flop_count.py:26-44
    """
    if entry.kind in MAC_KINDS:
        return 1
    if entry.kind == "norm":
        return 5 if entry.weight else 4
    if entry.kind == "pooling":
        return 1
    if entry.kind in ("bias", "expert_bias", "elementwise", "rope", "softmax", "activation", "rms_norm", "embedding"):
        return 0
    raise unknown_kind(NAME, entry)


def predict(ledger: Ledger, device: str) -> Size:
    """The reading that the rules give for a ledger, the same on every device."""
    return ledger.billed(bills)


def additions(ledger: Ledger, device: str) -> dict[str, Size]:
    """What a reading adds to the multiply-accumulates, by kind, the same on every device."""
    return added_by_kind(ledger, bills)
