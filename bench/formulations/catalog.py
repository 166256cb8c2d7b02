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
"""Sizes of all formulations; widths are multiples of 8, because F.grouped_mm takes no others on meta."""


@dataclass(frozen=True)
class Formulation:
    """One layer written one way: ``module()`` builds it, ``exact`` is the ledger of what it must do."""

    name: str
    written: str
    module: Callable[[], nn.Module]
    exact: Ledger
    inputs: tuple[str, ...] = ("query", "key")

    def build(self, device: str) -> tuple[nn.Module, dict[str, Tensor]]:
        """Return the module in eval mode and its inputs by name, with seeded values, on ``device``."""
        # F.grouped_mm takes only bfloat16 on meta.
        dtype = torch.bfloat16 if device == "meta" else torch.float32
        # leave the caller's random state as it was
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(0)
            module = self.module().to(device=device, dtype=dtype).eval()
            given = {
                "query": torch.randn(B, T, D_MODEL).to(dtype),
                "key": torch.randn(B, S, D_MODEL).to(dtype),
                "tokens": torch.randint(VOCABULARY, (B, T)),
            }
        return module, {name: given[name].to(device) for name in self.inputs}


def _mha(core, linear=nn.Linear, kv_heads=HEADS) -> Callable[[], nn.Module]:
    return partial(layers.FormulatedMHA, core, D_MODEL, HEADS, kv_heads, linear)


def _moa(core=cores.with_matmul, kind=experts.GatheredBmm) -> Callable[[], nn.Module]:
    return partial(layers.FormulatedMoA, core, kind, D_MODEL, EXPERTS, TOP_K, WIDTH)


def _torch_mha(need_weights: bool) -> Callable[[], nn.Module]:
    return partial(layers.TorchMHA, D_MODEL, HEADS, need_weights)


def _mha_ledger(kv_heads: int = HEADS, keys: int = S) -> Ledger:
    return mha.layer("", B=B, T=T, S=keys, d_m=D_MODEL, h=HEADS, d_h=D_MODEL // HEADS, g=kv_heads)


MOA = moa.layer("", B=B, T=T, S=S, d_m=D_MODEL, E=EXPERTS, K=TOP_K, D=WIDTH)
DENSE = Ledger(
    tuple(
        replace(entry, dims={**entry.dims, "E": EXPERTS}) if entry.kind == "expert_linear" else entry for entry in MOA
    )
)
"""Each of the K rows of a token goes through all E experts."""
VOCABULARY_LEDGER = Ledger((Entry("projection", "linear", {"B": B, "T": T, "d_m": D_MODEL, "V": VOCABULARY}),))

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
_VOCABULARIES = {
    "module": ("nn.Linear with the embedding's weight", layers.VocabularyModule),
    "tied": ("F.linear on the embedding's weight", layers.VocabularyTied),
}

FORMULATIONS = (
    *(Formulation(f"mha-{n}", text, _mha(core), _mha_ledger()) for n, (text, core) in _CORES.items()),
    Formulation(
        "mha-fused-gqa",
        "F.scaled_dot_product_attention, enable_gqa",
        _mha(cores.with_fused_groups, kv_heads=KV_HEADS),
        _mha_ledger(KV_HEADS),
    ),
    Formulation("mha-torch", "nn.MultiheadAttention", _torch_mha(False), _mha_ledger()),
    Formulation("mha-torch-weights", "nn.MultiheadAttention, need_weights", _torch_mha(True), _mha_ledger()),
    Formulation(
        "mha-torch-self", "nn.MultiheadAttention to itself", _torch_mha(False), _mha_ledger(keys=T), ("query",)
    ),
    *(
        Formulation(f"mha-{n}", f"projections by {text}", _mha(cores.with_matmul, linear), _mha_ledger())
        for n, (text, linear) in _LINEARS.items()
    ),
    *(Formulation(f"moa-{n}", f"{text}, gathered torch.bmm", _moa(core), MOA) for n, (text, core) in _CORES.items()),
    Formulation("moa-fused-gqa", "F.scaled_dot_product_attention, enable_gqa", _moa(cores.with_fused_groups), MOA),
    *(Formulation(f"moa-{n}", f"experts by {text}", _moa(kind=kind), MOA) for n, (text, kind) in _EXPERTS.items()),
    Formulation("moa-dense", "every expert for every row", _moa(kind=experts.Dense), DENSE),
    *(
        Formulation(f"vocabulary-{n}", text, partial(module, D_MODEL, VOCABULARY), VOCABULARY_LEDGER, ("tokens",))
        for n, (text, module) in _VOCABULARIES.items()
    ),
)


def formulation(name: str) -> Formulation:
    """Return the formulation called ``name``. KeyError where there is none."""
    return {s.name: s for s in FORMULATIONS}[name]
