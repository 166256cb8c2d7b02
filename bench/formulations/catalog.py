"""Formulations of a layer with their exact ledgers, which the audit runs through every counter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from headcount.bench.formulations import cores, experts, layers
from headcount.formulas import mha, moa
from headcount.formulas.ledger import Entry, Ledger

B, T, S, D_MODEL, HEADS, KV_HEADS, EXPERTS, TOP_K, WIDTH, VOCABULARY = 2, 7, 11, 48, 6, 3, 5, 3, 16, 29
"""Sizes of all formulations; widths are multiples of 8, because F.grouped_mm rejects others on meta."""


@dataclass(frozen=True)
class Formulation:
    """A formulation of a layer: ``module()`` builds it, ``exact`` is the ledger of the necessary operations."""

    name: str
    written: str
    module: Callable[[], nn.Module]
    exact: Ledger
    inputs: tuple[str, ...] = ("query", "key")

    def build(self, device: str) -> tuple[nn.Module, dict[str, Tensor]]:
        """Return the module in eval mode and its inputs by name, with seeded values, on ``device``."""
        # F.grouped_mm takes only bfloat16 on meta.
        dtype = torch.bfloat16 if device == "meta" else torch.float32
        # Restore the caller's random state.
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(0)
            module = self.module().to(device=device, dtype=dtype).eval()
            given = {
                "query": torch.randn(B, T, D_MODEL).to(dtype),
                "key": torch.randn(B, S, D_MODEL).to(dtype),
                "tokens": torch.randint(VOCABULARY, (B, T)),
            }
        return module, {name: given[name].to(device) for name in self.inputs}


def _mha_ledger(kv_heads: int = HEADS, keys: int = S) -> Ledger:
    return mha.layer("", B=B, T=T, S=keys, d_m=D_MODEL, h=HEADS, d_h=D_MODEL // HEADS, g=kv_heads)


MOA = moa.layer("", B=B, T=T, S=S, d_m=D_MODEL, E=EXPERTS, K=TOP_K, D=WIDTH)
DENSE = Ledger(
    tuple(
        replace(entry, dims={**entry.dims, "E": EXPERTS}) if entry.kind == "expert_linear" else entry for entry in MOA
    )
)
"""Each of the K rows of a token goes through all E experts."""


def _mha(name: str, written: str, core=cores.with_matmul, linear=nn.Linear, kv_heads=HEADS) -> Formulation:
    layer = partial(layers.FormulatedMHA, core, D_MODEL, HEADS, kv_heads, linear)
    return Formulation(f"mha-{name}", written, layer, _mha_ledger(kv_heads))


def _moa(name: str, written: str, core=cores.with_matmul, kind=experts.GatheredBmm, exact=MOA) -> Formulation:
    layer = partial(layers.FormulatedMoA, core, kind, D_MODEL, EXPERTS, TOP_K, WIDTH)
    return Formulation(f"moa-{name}", written, layer, exact)


def _torch_mha(need_weights: bool) -> Callable[[], nn.Module]:
    return partial(layers.TorchMHA, D_MODEL, HEADS, need_weights)


def _vocabulary(name: str, written: str, kind: type[nn.Module]) -> Formulation:
    exact = Ledger((Entry("projection", "linear", {"B": B, "T": T, "d_m": D_MODEL, "V": VOCABULARY}),))
    return Formulation(f"vocabulary-{name}", written, partial(kind, D_MODEL, VOCABULARY), exact, ("tokens",))


_CORES = {
    "matmul": ("torch.matmul", cores.with_matmul),
    "method": ("Tensor.matmul", cores.with_method),
    "operator": ("@", cores.with_operator),
    "einsum": ("torch.einsum", cores.with_einsum),
    "bmm": ("torch.bmm", cores.with_bmm),
    "baddbmm": ("torch.baddbmm", cores.with_baddbmm),
    "fused": ("F.scaled_dot_product_attention", cores.with_fused),
    "flex": ("flex_attention", cores.with_flex),
}
_LINEARS = {
    "functional": ("F.linear", layers.Functional),
    "operator-projections": ("x @ W + b", layers.Operator),
    "addmm": ("torch.addmm", layers.Addmm),
    "subclass": ("a subclass of nn.Linear", layers.Subclass),
    "conv": ("nn.Conv1d", layers.Convolution),
}
_EXPERTS = {
    "mask-loop": ("a loop over experts with masks", experts.MaskLoop),
    "function": ("an autograd.Function", experts.InFunction),
    "broadcast": ("gathered weights, broadcast torch.matmul", experts.GatheredBroadcast),
    "grouped": ("F.grouped_mm", experts.Grouped),
}

FORMULATIONS = (
    *(_mha(name, written, core) for name, (written, core) in _CORES.items()),
    _mha("fused-gqa", "F.scaled_dot_product_attention, enable_gqa", cores.with_fused_groups, kv_heads=KV_HEADS),
    Formulation("mha-torch", "nn.MultiheadAttention", _torch_mha(False), _mha_ledger()),
    Formulation("mha-torch-weights", "nn.MultiheadAttention, need_weights", _torch_mha(True), _mha_ledger()),
    Formulation(
        "mha-torch-self", "nn.MultiheadAttention to itself", _torch_mha(False), _mha_ledger(keys=T), ("query",)
    ),
    *(_mha(name, f"projections by {written}", linear=linear) for name, (written, linear) in _LINEARS.items()),
    *(_moa(name, f"{written}, gathered torch.bmm", core) for name, (written, core) in _CORES.items()),
    _moa("fused-gqa", "F.scaled_dot_product_attention, enable_gqa", cores.with_fused_groups),
    *(_moa(name, f"experts by {written}", kind=kind) for name, (written, kind) in _EXPERTS.items()),
    _moa("dense", "every expert for every row", kind=experts.Dense, exact=DENSE),
    _vocabulary("module", "nn.Linear with the embedding's weight", layers.VocabularyModule),
    _vocabulary("tied", "F.linear on the embedding's weight", layers.VocabularyTied),
)


def formulation(name: str) -> Formulation:
    """Return the formulation called ``name``; raise KeyError for an unknown name."""
    return {s.name: s for s in FORMULATIONS}[name]
