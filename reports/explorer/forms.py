"""The layers that the explorer compares: each account of each, written out as products of named sizes.

Everything comes from the closed forms with symbols for sizes; a sum that is not the account it stands for raises.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import sympy

from headcount.bench.accounts import Assumptions
from headcount.bench.case import attention_form
from headcount.bench.macs import grid
from headcount.bench.variants.variant import Variant, variant
from headcount.formulas import backward, conventions, decoding, layer, mha, moa
from headcount.formulas.ledger import Entry, Ledger, Size
from headcount.formulas.symbols import symbol
from headcount.reports.explorer.nodes import ORDER

VARIANTS = ("mha", "moa", "moh", "mla", "switchhead")
LABELS = {"mha": "GQA: g of h heads"}
"""Names that say more than the variant's."""
PATH = "attn"
"""The module path of a layer by itself."""
B, T, D_M = symbol("B"), symbol("T"), symbol("d_m")
GIVEN = Assumptions()


@dataclass(frozen=True)
class Equation:
    """An equation as printed; ``where``: sizes that must be equal for it to be of this layer."""

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
    of: Variant
    sizes: Mapping[str, Size]
    ideal: bool = False
    equations: Mapping[str, Equation] = field(default_factory=dict)

    @property
    def letters(self) -> list[str]:
        """The letters that its sizes are of, in the legend's order."""
        used = set().union(*(sympy.sympify(size, strict=True).free_symbols for size in self.sizes.values()))
        return sorted((s.name for s in used), key=ORDER.get)

    def ledger(self, cases: Mapping[str, int], **lengths: Size) -> Ledger:
        """Its closed form with ``cases`` for some letters."""
        example = grid.case_at(self.of, {**self.of.search.example, "T": 1})
        given = {symbol(letter): size for letter, size in cases.items()}
        sizes = {name: sympy.sympify(size, strict=True).subs(given) for name, size in self.sizes.items()}
        sizes |= {name: int(size) for name, size in sizes.items() if size.is_Integer}
        config = (example.ideal if self.ideal else example).config
        whole = {"d_m": D_M, **sizes} | ({"bias": False} if "bias" in config.fields_by_letter else {})
        form = attention_form(config, whole)
        if "n" in lengths:
            return layer.step(lambda path, **given: form(PATH, **given), B=B, new=1, stored=lengths["n"])
        return form(PATH, B=B, T=T, S=T)


def forms() -> list[Form]:
    """The layers, that of the same width first, with which the others are compared."""
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
    return out


Term = tuple[Entry, Size]


@dataclass(frozen=True)
class Account:
    """A sum over entries: ``terms`` of a form at ``cases``; ``key`` is its column's in ``bench.macs --grid``.

    ``billed``: how often the MoA paper's equations of this account bill an entry, None where it prints none.
    """

    name: str
    label: str
    unit: str
    key: str
    terms: Callable[[Form, Mapping[str, int]], Iterator[Term]]
    total: Callable[[Form, Mapping[str, int]], Size]
    billed: Callable[[Entry], int] | None = None


def _pass(form: Form, cases) -> Ledger:
    return form.ledger(cases)


def _step(form: Form, cases, stored: Size = T) -> Ledger:
    return form.ledger(cases, n=stored)


def _macs(ledger: Ledger) -> Iterator[Term]:
    return ((entry, entry.macs) for entry in ledger)


def _generated(form: Form, cases) -> Iterator[Term]:
    steps = zip(_step(form, cases, 1), _step(form, cases, T), strict=True)
    for first, last in steps:
        macs = {1: first.macs, T: last.macs}
        yield last, sympy.factor(decoding.total(macs.__getitem__, T))


def _training(form: Form, cases) -> Iterator[Term]:
    for entry in _pass(form, cases):
        yield entry, backward.training_macs(Ledger((entry,)))


def _moved(form: Form, cases) -> Iterator[Term]:
    for entry in _step(form, cases):
        elements = decoding.weights_read(entry)
        elements += entry.size if entry.kind in ("cache_read", "cache_write") else 0
        yield entry, GIVEN.element_bytes * elements


def _held(form: Form, cases) -> Iterator[Term]:
    return ((e, GIVEN.element_bytes * e.size) for e in _step(form, cases) if e.kind == "cache")


def _no_router(entry: Entry) -> int:
    return 1 - conventions.router(entry)


BYTES = f"bytes, {GIVEN.element_bytes} an element"
LAYER_ACCOUNTS = (
    Account("forward", "MACs, forward", "MACs", "macs", lambda f, c: _macs(_pass(f, c)), lambda f, c: _pass(f, c).macs,
            conventions.equations_18_19),
    Account("decode", "MACs, decode step", "MACs", "decode_macs", lambda f, c: _macs(_step(f, c)),
            lambda f, c: _step(f, c).macs),
    Account("generate", "MACs, generating T tokens", "MACs", "generate_macs", _generated,
            lambda f, c: decoding.total(lambda stored: _step(f, c, stored).macs, T)),
    Account("training", "MACs, training step", "MACs", "training_macs", _training,
            lambda f, c: backward.training_macs(_pass(f, c))),
    Account("params", "parameters", "parameters", "params", lambda f, c: ((e, e.params) for e in _pass(f, c)),
            lambda f, c: _pass(f, c).params, _no_router),
    Account("active", "active parameters", "parameters", "active_params",
            lambda f, c: ((e, e.active_params) for e in _pass(f, c)), lambda f, c: _pass(f, c).active_params),
    Account("cache", "cache of keys and values", BYTES, "kv_bytes", _held,
            lambda f, c: GIVEN.element_bytes * decoding.cache_elements(_step(f, c))),
    Account("moved", "what a decode step moves", BYTES, "decode_bytes", _moved,
            lambda f, c: GIVEN.element_bytes * decoding.step_elements(_step(f, c))),
)  # fmt: skip
