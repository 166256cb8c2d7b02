"""ptflops, backend ``pytorch``: forward hooks by exact module type, and patched Python functions.

Adds to multiply-accumulates one per element for biases, norms and some activations. Places are in the
ptflops 0.7.5 sources.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from headcount.bench.counters import ptflops_run
from headcount.bench.counters.reading import Reading, added_by_kind, unknown_kind
from headcount.bench.counters.undisturbed import device_of
from headcount.formulas.ledger import MAC_KINDS, Entry, Ledger, Size

NAME = "ptflops-pytorch"
# On meta it counts biased linear layers twice, see predict.
DEFAULT_DEVICE = "cpu"
VERIFIED = {"ptflops": "0.7.5", "torch": "2.13"}


def count(model: nn.Module, inputs: Mapping[str, Tensor], *, label: str) -> Reading:
    """One forward pass over the whole batch; ``inputs`` are forward's parameters by name.

    ``params`` are the trainable ones (pytorch_engine.py:161). ``uncounted`` are the module types that ptflops
    calls zero-ops (:231); it does not name functions. Totals above 2**53 would be rounded: the module sum
    passes through a float (:199). Raises CounterError.
    """
    macs, params, report = ptflops_run.run(model, inputs, backend="pytorch", counter=NAME, label=label)
    types = [type(module).__name__ for module in model.modules()]
    zero_ops = {line.split()[2] for line in report.splitlines() if line.endswith("is treated as a zero-op.")}
    return Reading(
        counter=NAME,
        tool="ptflops",
        version=ptflops_run.VERSION,
        backend="pytorch",
        device=device_of(inputs),
        macs=macs,
        params=params,
        by_module=None,
        by_operator=None,
        uncounted={name: types.count(name) for name in dict.fromkeys(types) if name in zero_ops},
    )


def bills(entry: Entry) -> int:
    """How many times a reading on cpu or cuda holds ``entry.size``; ValueError for an unknown kind.

    linear, conv            1  nn.Linear, nn.Conv1d: module hooks, pytorch_ops.py:35-43, 60-92
    expert_linear, scores,  1  torch.bmm, torch.matmul: patched, pytorch_ops.py:385-387; not ``@`` or einsum
      values
    bias                    1  in those module hooks, :41 and :87
    norm                    1  nn.LayerNorm: :51-57, which look for ``affine``, an attribute that it lacks
    activation              1  F.relu, F.gelu, F.silu: patched, pytorch_engine.py:348-390
    pooling                 1  F.adaptive_avg_pool2d, per element of the input: patched, pytorch_engine.py:370
    expert_bias, rope,      0  ``+`` and ``*``: pytorch_engine.py:434-474 patches torch.add and torch.mul only
      rms_norm, elementwise
    softmax                 0  torch.softmax: only F.softmax is patched, :348-390
    embedding               0  nn.Embedding has no hook: pytorch_ops.py:271-336
    """
    if entry.kind in MAC_KINDS or entry.kind in ("bias", "norm", "activation", "pooling"):
        return 1
    if entry.kind in ("expert_bias", "elementwise", "rope", "rms_norm", "softmax", "embedding"):
        return 0
    raise unknown_kind(NAME, entry)


def predict(ledger: Ledger, device: str) -> Size:
    """The reading that the rules give for a ledger: its MACs and :func:`additions`.

    Modules registered under p parents are billed p times (pytorch_engine.py:96-103), which a ledger cannot say.
    """
    return ledger.macs + sum(additions(ledger, device).values())


def additions(ledger: Ledger, device: str) -> dict[str, Size]:
    """What a reading adds to the multiply-accumulates, by name.

    On meta, torch's addmm is Python that calls the patched torch.mm (torch/_decomp/decompositions.py): the
    product of every biased nn.Linear is billed a second time. ValueError for a bias without a product.
    """
    added = added_by_kind(ledger, bills)
    biased = {entry.path for entry in ledger if entry.kind == "bias"}
    products = {entry.path for entry in ledger if entry.kind in ("linear", "conv")}
    if biased - products:
        raise ValueError(f"bias without a product at {', '.join(sorted(biased - products))}")
    again = sum(entry.size for entry in ledger if entry.kind == "linear" and entry.path in biased)
    if device == "meta" and again:
        added["biased linear again"] = again
    return added
