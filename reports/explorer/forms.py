"""The layers that the explorer compares and what it counts of them, from the closed forms with symbols for sizes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter

import sympy

from headcount.bench.accounts import RECIPES, Assumptions
from headcount.bench.case import attention_form
from headcount.bench.macs import grid
from headcount.bench.variants.variant import Variant, variant
from headcount.formulas import backward, conventions, decoding, mha, moa, prices
from headcount.formulas.ledger import Entry, Ledger, Size, divide, least
from headcount.formulas.mha import causal_half
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.nodes import ORDER

VARIANTS = ("mha", "moa", "moh", "mla", "switchhead")
LABELS = {"mha": "GQA (MQA: g = 1): g of h heads"}
"""Labels that replace the variant's."""
PATH = "attn"
"""The module path of a layer."""
B, T, D_M, W = symbol("B"), symbol("T"), symbol("d_m"), symbol("w")
ASSUMED = Assumptions()


@dataclass(frozen=True)
class Equation:
    """A printed equation. ``where``: the size that each letter must have for the equation to apply."""

    name: str
    size: Size
    where: Mapping[str, Size] = field(default_factory=dict)


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

    def ledger(self, case: Mapping[str, int], decode: bool = False) -> Ledger:
        """Return the closed form of a forward pass, or of the decode step that stores token T.

        ``case`` gives integers for some letters.
        """
        example = grid.case_at(self.variant, {**self.variant.search.example, "T": 1})
        config = (example.ideal if self.ideal else example).config
        at_case = {symbol(letter): size for letter, size in case.items()}
        sizes = dict(zip(self.sizes, sympy.Tuple(*self.sizes.values()).subs(at_case), strict=True))
        sizes |= {letter: int(size) for letter, size in sizes.items() if size.is_Integer}
        bias = {"bias": False} if "bias" in config.fields_by_letter else {}
        form = attention_form(config, {"d_m": D_M, **sizes, **bias})
        return form(PATH, B=B, T=1, S=T, n=T - 1) if decode else form(PATH, B=B, T=T, S=T)


@cache
def forms() -> list[Form]:
    """Return the layers; the first is MHA of the same width, with which the others are compared."""
    plain, K, D, E = variant(VARIANTS[0]), symbol("K"), symbol("D"), symbol("E")
    dense = {
        "forward": Equation("Eq. 19", B * mha.macs_eq19(T=T, d_m=D_M)),
        "params": Equation("Eq. 20", mha.params_eq20(d_m=D_M)),
    }
    equal = {"d_h": D_M / symbol("h"), "g": symbol("h")}
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
    """A sum over the entries of a forward pass or of a decode step; ``key`` is its column in ``bench.macs --grid``.

    ``size``: what the ledger of one entry adds. ``is_counted``: whether the MoA paper's equation of this account counts
    an entry. ``multiple``: an account and the factor that it is multiplied by. ``options``: further ones of the
    command, with letters in braces for sizes.
    """

    name: str
    label: str
    unit: str
    key: str
    size: Callable[[Ledger], Size]
    decode: bool = False
    is_counted: Callable[[Entry], int] = lambda entry: True
    multiple: tuple[str, int] | None = None
    options: str = ""

    def terms(self, form: Form, case: Mapping[str, int]) -> Iterator[tuple[Entry, Size]]:
        """Return each entry of a form with what it adds."""
        return ((entry, self.size(Ledger((entry,)))) for entry in form.ledger(case, self.decode))


def _generate_macs(last: Ledger) -> Size:
    """Return the MACs of operations in all T steps, given those of the last one."""
    macs = sympy.sympify(last.macs, strict=True)
    return sympy.factor(decoding.total(lambda stored: macs.subs(T, stored), T))


def _windowed_macs(form: Ledger) -> Size:
    """Return the MACs of an operation of queries that see themselves and the w - 1 tokens before them."""
    (entry,), seen = form, least(T, W)
    return divide(entry.macs * seen * (2 * T - seen + 1), 2 * T**2) if {"T", "S"} <= entry.dims.keys() else entry.macs


def _bytes(elements: Callable[[Ledger], Size]) -> Callable[[Ledger], Size]:
    """Return a function that gives the bytes of the ``elements`` of a ledger."""
    return lambda form: ASSUMED.element_bytes * elements(form)


def _state(optimizer: str, recipe: Mapping[str, int]) -> Account:
    """Return the account of an optimizer's training state."""
    size = sum(recipe.values())
    unit, multiple, options = f"bytes, {size} a parameter", ("params", size), f"--optimizer {optimizer}"
    name, label = f"state-{optimizer}", f"training state, {optimizer}"
    return Account(name, label, unit, "training_state_bytes", attrgetter("params"), multiple=multiple, options=options)


BYTES = f"bytes, {ASSUMED.element_bytes} an element"
LAYER_ACCOUNTS = (
    Account("forward", "MACs, forward", "MACs", "macs", attrgetter("macs"), is_counted=conventions.equations_18_19),
    Account("causal", "MACs, forward, causal", "MACs", "causal_macs", lambda form: causal_half(form).macs),
    Account("windowed", "MACs, forward, window of w tokens", "MACs", "windowed_macs", _windowed_macs,
            options="--window {w}"),
    Account("token", "MACs per token", "MACs", "macs_per_token", lambda form: divide(form.macs, B * T)),
    Account("sample", "MACs per sample", "MACs", "macs_per_sample", lambda form: divide(form.macs, B)),
    Account("decode", "MACs, decode step", "MACs", "decode_macs", attrgetter("macs"), decode=True),
    Account("generate", "MACs, generating T tokens", "MACs", "generate_macs", _generate_macs, decode=True),
    Account("training", "MACs, training step", "MACs", "training_macs", backward.training_macs),
    *(_state(optimizer, recipe) for optimizer, recipe in RECIPES.items()),
    Account("other", "FLOPs of softmax, norms and elementwise operations", "FLOPs", "other_flops",
            lambda form: sum(prices.other_flops(form, prices.PRICES).values())),
    Account("params", "parameters", "parameters", "params", attrgetter("params"),
            is_counted=lambda entry: not conventions.router(entry)),
    Account("active", "active parameters", "parameters", "active_params", attrgetter("active_params")),
    Account("cache", "cache of keys and values", BYTES, "kv_bytes", _bytes(decoding.cache_elements), decode=True),
    Account("moved", "what a decode step moves", BYTES, "decode_bytes", _bytes(decoding.step_elements), decode=True),
)  # fmt: skip
