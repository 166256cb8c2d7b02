"""The layers that the explorer compares and what it counts of them, from the closed forms with symbols for sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import sympy

from headcount.bench.accounts import ACCOUNTS, RECIPES, Assumptions
from headcount.bench.case import Case
from headcount.bench.macs import grid
from headcount.bench.variants.variant import Variant, variant
from headcount.formulas import mha, moa
from headcount.formulas.ledger import Ledger, Size
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.nodes import ORDER, Node

VARIANTS = ("mha", "moa", "moh", "mla", "switchhead")
LABELS = {"mha": "GQA (MQA: g = 1): g of h heads"}
"""Labels that replace the variant's."""
B, T, D_M = symbol("B"), symbol("T"), symbol("d_m")
ASSUMED = Assumptions()


@dataclass(frozen=True)
class Equation:
    """A printed equation. ``where``: pairs of nodes that must be equal for the equation to apply."""

    name: str
    size: Size
    where: Sequence[tuple[Node, Node]] = ()


@dataclass(frozen=True)
class SymbolicCase(Case):
    """A case with letters for sizes. ``edit`` changes its ledgers: a form with as many layers as a letter says."""

    edit: Callable[[Ledger], Ledger] = lambda form: form

    @cached_property
    def ledger(self) -> Ledger:
        """Return the edited closed form of a forward pass."""
        return self.edit(super().ledger)

    def step(self, stored: Size, new: Size = 1) -> Ledger:
        """Return the edited closed form of a decode step."""
        return self.edit(super().step(stored, new))


@dataclass(frozen=True)
class Form:
    """One layer of a variant: ``sizes`` are those of its closed form's letters; ``ideal``: in its ideal form.

    ``equations``: by account, what the MoA paper prints of it.
    """

    name: str
    label: str
    variant: Variant
    sizes: Mapping[str, Size]
    ideal: bool = False
    equations: Mapping[str, Equation] = field(default_factory=dict)

    @property
    def letters(self) -> list[str]:
        """Return the letters in its sizes, in the legend's order."""
        used = sympy.Tuple(*self.sizes.values()).free_symbols
        return sorted((letter.name for letter in used), key=ORDER.get)

    def case(self, integers: Mapping[str, int]) -> SymbolicCase:
        """Return the layer without biases, with ``integers`` for some of its letters."""
        example = grid.case_at(self.variant, {**self.variant.search.example, "T": 1})
        at_case = {symbol(letter): size for letter, size in integers.items()}
        sizes = dict(zip(self.sizes, sympy.Tuple(*self.sizes.values()).subs(at_case), strict=True))
        sizes |= {letter: int(size) for letter, size in sizes.items() if size.is_Integer}
        config = (example.ideal if self.ideal else example).config
        lengths = {"batch_size": B, "tgt_len": T, "src_len": T}
        return SymbolicCase(self.name, config, lengths, sizes={"d_m": D_M, "bias": False, **sizes})


@cache
def forms() -> list[Form]:
    """Return the layers; the first is MHA of the same width, with which the others are compared."""
    plain, K, D, E = variant(VARIANTS[0]), symbol("K"), symbol("D"), symbol("E")
    dense = {
        "forward": Equation("Eq. 19", B * mha.macs_eq19(T=T, d_m=D_M)),
        "params": Equation("Eq. 20", mha.params_eq20(d_m=D_M)),
    }
    equal = [(["*", "h", "d_h"], "d_m"), ("g", "h")]
    equations = {
        "mha": {account: replace(equation, where=equal) for account, equation in dense.items()},
        "moa": {
            "forward": Equation("Eq. 18", B * moa.macs_eq18(T=T, K=K, D=D, d_m=D_M)),
            "params": Equation("Eq. 20", moa.params_eq20(E=E, D=D, d_m=D_M)),
        },
    }
    out = [Form("width", f"{plain.label} of the same width", plain, {"h": 1, "g": 1, "d_h": D_M}, equations=dense)]
    for name in VARIANTS:
        own = variant(name)
        sizes = {letter: symbol(letter) for letter in own.search.letters}
        both = hasattr(own.config, "form")
        label = f"{own.label} released" if both else LABELS.get(name, own.label)
        out.append(Form(name, label, own, sizes, equations=equations.get(name, {})))
        if both:
            out.append(Form(f"{name}-ideal", f"{own.label} ideal", own, sizes, ideal=True))
    # a MoA layer without its router: as many heads on one key and value head
    out.insert(3, Form("mqa", "MQA of K heads", plain, {"h": K, "g": 1, "d_h": D}))
    latent = next(form for form in out if {"d_c"} <= form.sizes.keys())
    sizes = {**latent.sizes, "d_q": symbol("d_q")}
    out.append(replace(latent, name="mla-queries", label=f"{latent.variant.label} with d_q", sizes=sizes))
    return out


@dataclass(frozen=True)
class Account:
    """An account of bench.accounts, or a property of a ledger: ``key`` is its column in ``headcount grid``.

    ``multiple``: an account and the factor that it is multiplied by. ``options``: further ones of the command, with
    letters in braces for sizes.
    """

    name: str
    label: str
    unit: str
    key: str
    multiple: tuple[str, int] | None = None
    options: str = ""

    def of(self, case: Case) -> Size:
        """Return the account of a case; the context is its input, and the window is w."""
        if self.key in ACCOUNTS:
            window = symbol("w") if self.key == "windowed_macs" else None
            return ACCOUNTS[self.key].value(case, replace(ASSUMED, window=window))
        return getattr(case.ledger, self.key)


def _state(optimizer: str, recipe: Mapping[str, int]) -> Account:
    """Return the account of an optimizer's training state."""
    size = sum(recipe.values())
    name, label, unit = f"state-{optimizer}", f"training state, {optimizer}", f"bytes, {size} a parameter"
    return Account(name, label, unit, "training_state_bytes", ("params", size), f"--optimizer {optimizer}")


BYTES = f"bytes, {ASSUMED.element_bytes} an element"
LAYER_ACCOUNTS = (
    Account("forward", "MACs, forward", "MACs", "macs"),
    Account("causal", "MACs, forward, causal", "MACs", "causal_macs"),
    Account("windowed", "MACs, forward, window of w tokens", "MACs", "windowed_macs", options="--window {w}"),
    Account("token", "MACs per token", "MACs", "macs_per_token"),
    Account("sample", "MACs per sample", "MACs", "macs_per_sample"),
    Account("decode", "MACs, decode step", "MACs", "decode_macs"),
    Account("generate", "MACs, generating T tokens", "MACs", "generate_macs"),
    Account("training", "MACs, training step", "MACs", "training_macs"),
    *(_state(optimizer, recipe) for optimizer, recipe in RECIPES.items()),
    Account("other", "FLOPs of softmax, norms and elementwise operations", "FLOPs", "other_flops"),
    Account("params", "parameters", "parameters", "params"),
    Account("active", "active parameters", "parameters", "active_params"),
    Account("cache", "cache of keys and values", BYTES, "kv_bytes"),
    Account("moved", "what a decode step moves", BYTES, "decode_bytes"),
)
