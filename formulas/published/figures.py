"""Printed cells: the expression that gives a column's values, the digits that it prints, and the targets of its rows.

The ``value`` of a figure is an expression of LETTERS, which are those of a row's target, and of letters ``given`` in
the row. ``value`` may be an expression for each ``kind`` of row; a row with a ``part`` has the letters of that part of
its model. A given text is a rounded number and stands for its interval, an integer or a quotient "3/4" is exact.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

from headcount.formulas import conventions
from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.ledger import Ledger, divide, flops
from headcount.formulas.moh import activated_percent, shared_percent
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.rounding import (
    BINARY,
    LARGEST,
    MOST_DIGITS,
    UNITS,
    Interval,
    decimals,
    ends,
    fixed,
    read,
)
from headcount.formulas.published.typed import UNREAD

Case = Any
"""The model of a target: ``ledger``, its exact ledger, ``ideal_ledger``, that of its ideal form, None if it has none,
``causal_macs``, those without the pairs that causal masks hide, None where they are not known,
``cache``, the elements of its KV cache at its length, ``token_cache``, those that a token adds to the cache of one
sequence before any window is full, both None where they are not known, for the reason ``no_step``,
``tokens`` and ``samples`` of its input, ``target_tokens``, the tokens that it reads, or writes in a translation, None
without them, ``length``, its sequence length, None where no other can be asked for, ``flops_per_token``, a function of
a rule of training and the entries that it counts, and ``has_paths``, whether the paths of its ledger name its parts."""
MOST_ROUNDED = 12
"""The most rounded numbers in an expression, which is evaluated at all their ends."""
MIN_WHOLE = 3
"""Different cells of a column that is taken to be rounded up, or of one that only cutting off prints."""
LAST_ZEROS = "where its last zeros are no printed digits"
"""How a cell is printed whose last zeros are no digits."""
EMPTY = ("", "-", "–", "—", "n/a", "N/A")
"""Cells without a printed value."""

LETTERS: dict[str, Callable[[Ledger, Case, Rule], Any]] = {
    "T": lambda form, case, rule: case.target_tokens or case.tokens,
    "samples": lambda form, case, rule: case.samples,
    "N": lambda form, case, rule: form.params,
    "macs": lambda form, case, rule: form.total_under(rule),
    "N_active": lambda form, case, rule: form.active_params,
    "N_norms": lambda form, case, rule: sum(entry.params for entry in form if entry.kind in ("norm", "rms_norm")),
    "N_embedding": lambda form, case, rule: sum(entry.params for entry in form if entry.kind == "embedding"),
    "N_router": lambda form, case, rule: form.select(conventions.router).params,
    "N_kv": lambda form, case, rule: form.select(lambda entry: re.search(r"\.[kv]_proj$", entry.path)).params,
    "looked_up": lambda form, case, rule: Fraction(
        sum(entry.size for entry in form if entry.kind == "embedding"), case.tokens
    ),
    "attention": lambda form, case, rule: divide(
        flops(sum(entry.macs for entry in form if entry.kind in ("scores", "values"))), case.tokens
    ),
    "work": lambda form, case, rule: case.flops_per_token(rule, form),
    "model_work": lambda form, case, rule: case.flops_per_token(rule.without_recomputation, form),
    "ideal_macs": lambda form, case, rule: case.ideal_ledger and case.ideal_ledger.total_under(rule),
    "causal_macs": lambda form, case, rule: case.causal_macs,
    "parameter_macs": lambda form, case, rule: (
        form.active_params * case.target_tokens if form.active_params and case.target_tokens else None
    ),
    "activated": lambda form, case, rule: activated_percent(form, case.ideal_ledger or form),
    "shared": lambda form, case, rule: shared_percent(case.ideal_ledger or form),
    "cache": lambda form, case, rule: case.cache,
    "token_cache": lambda form, case, rule: case.token_cache,
}
"""The letters of a model: T tokens of its input, or target, and its ``samples``; parameters N, N_router of its
routers, N_kv of its key and value projections; ``macs`` of a forward pass under the rule; ``looked_up``, the
elements of embeddings that a token looks up; ``attention``, the FLOPs per token of both T x T products in a forward
pass; ``work``, the FLOPs per token of a training step under the rule, and ``model_work``, those without what it runs
again; MACs of the ideal form, of causal pairs alone and of parameters times tokens; percentages of heads of MoH;
elements of the KV cache of its tokens, and of one token."""
OF_PATHS = {"N_norms", "looked_up", "N_router", "N_kv"}
"""The letters that only a model has whose ledger names its parts."""
OF_TRAINING = {"work", "model_work"}
"""The letters that need a rule of training."""
CONSTANT = {"N", "N_active", "N_norms", "N_embedding", "N_router", "N_kv", "token_cache"}
"""The letters that no length of an input changes."""
CACHED = {"cache", "token_cache"}
"""The letters that only a model that decodes has."""
OTHER_MACS = {
    "the ideal form": "ideal_macs",
    "causal pairs alone": "causal_macs",
    "parameters times tokens": "parameter_macs",
}
"""Other counts of a forward pass that papers print, by what they are called, which some models do not have."""
HEADS = {"activated", "shared"}
"""The letters that only a model with heads has."""
UNKNOWN = {
    "N_active": "the active parameters of {row.target} are not known",
    **dict.fromkeys(OTHER_MACS.values(), "{row.target} has no such cost"),
    **dict.fromkeys(CACHED, "the KV cache of {row.target} is not known: {case.no_step}"),
    **dict.fromkeys(
        HEADS,
        "{figure.name} is a percentage of heads, and {row.target} has no heads of which a token may use some",
    ),
}
"""What is not known of a model whose letter is None."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A printed column, rounded half up, ``truncated`` or rounded ``upward`` to the digits of each cell; its judge
    decides which where the table does not state that it is truncated.

    Attributes:
        name: the key of its cells.
        head: its heading.
        value: the expression of its cells, or that of each kind of row.
        rule: how often each entry counts, a name of formulas/conventions.py.
        quantity: one of QUANTITIES, which gives name, head and value.
        about: what a quantity is, in words.
        judged: whether it decides the verdicts of rows.
        formula: its cells are expressions of the letters given in their rows, compared as integers.
        scale: what a printed number is multiplied by.
        significant: digits of an integer beyond which it has zeros.
        multiple: a printed number is a multiple of so many last digits.
        truncated: its digits are cut off.
        trailing_zeros: zeros at the end of an integer are no digits, in the whole table.
        binary: K, M, G and T are powers of 1,024.
    """

    name: str
    head: str
    value: str | Mapping[str, str]
    rule: str = ""
    quantity: str = ""
    judged: bool = True
    formula: bool = False
    scale: int = 1
    significant: int = 0
    multiple: int = 1
    about: str = field(default="", metadata=UNREAD)
    truncated: bool = False
    upward: bool = field(default=False, metadata=UNREAD)
    trailing_zeros: bool = field(default=False, metadata=UNREAD)
    binary: bool = field(default=False, metadata=UNREAD)

    def _read(self, text: str) -> tuple[str, str, Fraction]:
        """Return the digits of a printed number, its exponent and unit, and what these multiply the digits by."""
        digits, unit, size = read(text)
        # B is bytes, not billions
        if unit == "B" and "bytes" in self.head:
            size = Fraction(1)
        return digits, unit, Fraction(BINARY.get(f"{unit.upper()}i", size)) if self.binary else size

    def _step(self, value: Fraction, digits: str) -> Fraction:
        """Return the last digit of a printed ``value`` as a number."""
        if self.significant:
            return Fraction(10 ** max(len(str(floor(value))) - self.significant, 0))
        zeros = len(digits) - len(digits.rstrip("0")) if self.trailing_zeros and "." not in digits else 0
        return Fraction(self.multiple * 10**zeros, 10 ** decimals(digits))

    def interval(self, text: str) -> Interval:
        """Return the numbers that print as ``text``; ``high`` is the first that does not, upward ``low`` the last."""
        digits, _, unit = self._read(text)
        step = self._step(Fraction(digits), digits)
        low = Fraction(digits) - (0 if self.truncated else step if self.upward else step / 2)
        return Interval(low * unit * self.scale, (low + step) * unit * self.scale)

    @property
    def digits(self) -> str:
        """What happens to the digits that are not printed, in words."""
        return "cut off" if self.truncated else "rounded up" if self.upward else "rounded half up"

    @property
    def values(self) -> list[str]:
        """The expression, or that of each kind of row."""
        return [self.value] if isinstance(self.value, str) else [*self.value.values()]

    @property
    def letters(self) -> frozenset[str]:
        """The letters that its expressions need."""
        return frozenset[str]().union(*(expression(value).letters for value in self.values))

    @property
    def is_of_training(self) -> bool:
        """Whether it needs a rule of training."""
        return bool(self.letters & OF_TRAINING)

    def prints(self, value: Interval, text: str) -> bool:
        """Return whether a number of ``value`` prints as ``text``; a tie rounds up."""
        cell = self.interval(text)
        if self.upward:
            return value.low <= cell.high and value.high > cell.low
        return value.low < cell.high and value.high >= cell.low

    def other_digits(self, value: Interval, text: str, is_up: bool = False) -> str:
        """Return how a cell is printed with other digits than those of the column, in words: without its last zeros,
        cut off where the column rounds, rounded where it cuts off, or rounded up where the column ``is_up``; empty
        where none of these prints it."""
        # a formula and a multiple have no last digits
        has_digits = not self.formula and self.multiple == 1
        if has_digits and replace(self, trailing_zeros=True).prints(value, text):
            return LAST_ZEROS
        other = replace(self, truncated=not self.truncated)
        if other.prints(value, text):
            return other.digits
        up = replace(self, upward=True)
        return up.digits if is_up and has_digits and up.prints(value, text) else ""

    def in_other_unit(self, value: Interval, text: str) -> tuple[str, str]:
        """Return the digits of a cell with another unit, and how ``value`` prints so: cut off, or nothing where it is
        rounded; twice nothing where no unit does."""
        digits, unit, size = self._read(text)
        if self.formula or unit not in UNITS or unit == "%":
            return "", ""
        units = (*"KMGTP", *(BINARY if "bytes" in self.head else ()))
        texts = [f"{digits}{other}" for other in units if self._read(f"1{other}")[2] != size]
        for one in texts:
            how = self.other_digits(value, one)
            if how or self.prints(value, one):
                return one, "" if self.prints(value, one) else how
        return "", ""

    def text(self, value: int | Fraction, like: str) -> str:
        """Return ``value`` with the unit and the decimals of ``like``."""
        digits, suffix, unit = self._read(like)
        number = Fraction(value) / unit / self.scale
        step = self._step(number, digits)
        rounded = (
            ceil(number / step) if self.upward else floor(number / step + (0 if self.truncated else Fraction(1, 2)))
        )
        return fixed(rounded * step, decimals(digits)).replace(",", "") + suffix

    def format(self, value: Interval, like: str) -> str:
        """Return ``value`` as ``like`` is printed, with two digits more; both ends where they differ."""
        digits, suffix, unit = self._read(like)
        numbers = [end / unit / self.scale for end in (value.low, value.high)]
        is_count = not suffix and all(number.denominator == 1 for number in numbers)
        places = 0 if self.formula or is_count else decimals(digits) + 2
        ends = dict.fromkeys(fixed(number, places) for number in numbers)
        return " to ".join(ends) + suffix

    @property
    def multiplicity(self) -> Rule:
        """How many times the rule counts each entry."""
        return CONVENTIONS[self.rule or "exact"]

    @property
    def expression(self) -> str:
        """The expression, or that of each kind of row."""
        return self.value if isinstance(self.value, str) else "; ".join(f"{k}: {v}" for k, v in self.value.items())

    @property
    def statement(self) -> str:
        """Describe the figure in words."""
        if not self.quantity:
            rule = f"; work by {self.rule}: {self.multiplicity.about}" if self.rule else "."
            return f"{self.head}: {self.expression}{rule}"
        digits = f"{self.significant} significant" if self.significant else "the printed"
        digits = f"multiples of {self.multiple}" if self.multiple > 1 else f"{digits} digits"
        what = self.multiplicity.about.rstrip(".") if self.rule else self.about
        return f"{what}, {'truncated' if self.truncated else 'rounded half up'} to {digits}."


def _quantity(name: str, head: str, value: str, about: str = "") -> Figure:
    return Figure(name=name, head=head, value=value, about=about, quantity=name)


COSTS = {"macs": ("MACs", "macs"), "flops": ("FLOPs", "2 * macs")}
"""Heading and expression of the cost of a forward pass in each unit."""
SHARES = {"": ("", ""), "_per_token": (" per token", " / T"), "_per_sample": (" per sample", " / samples")}
"""The same of what a cost is divided by."""
FORWARD_COSTS = {
    unit + share: (head + per, value + divisor)
    for share, (per, divisor) in SHARES.items()
    for unit, (head, value) in COSTS.items()
}
"""Heading and expression of each cost of a forward pass."""
PER_TOKEN = [name for name in FORWARD_COSTS if name.endswith("_per_token")]
"""The costs of a forward pass that only a model with tokens has."""
CACHES = {
    one.name: one
    for one in (
        _quantity("kv_bytes", "KV cache bytes", "2 * cache",
                  "Bytes that all layers keep of T tokens, 2 an element (bfloat16, float16)"),
        _quantity("kv_token_bytes", "KV cache bytes per token", "2 * token_cache",
                  "Bytes that all layers keep of a token, 2 an element (bfloat16, float16)"),
        _quantity("kv_elements", "KV cache elements", "cache", "Numbers that all layers keep of T tokens"),
        _quantity("kv_token_elements", "KV cache elements per token", "token_cache",
                  "Numbers that all layers keep of a token"),
    )
}  # fmt: skip
"""The sizes of a KV cache."""
QUANTITIES = {
    one.name: one
    for one in (
        *(_quantity(name, head, value) for name, (head, value) in FORWARD_COSTS.items()),
        _quantity("params", "parameters", "N", "All parameters, frozen ones included"),
        _quantity("active_params", "active parameters", "N_active",
                  "Parameters that a token uses"),
        _quantity("active", "active parameters without the embedding", "N_active - N_embedding",
                  "Parameters that a token uses, without the embedding"),
        _quantity("activated", "activated heads", "activated", "Heads that a token uses, of all heads of all layers"),
        _quantity("shared", "shared heads", "shared", "Shared heads, of the heads that a token uses in all layers"),
        *CACHES.values(),
        _quantity("training_flops_per_token", "training FLOPs per token", "work"),
        _quantity("training_flops", "training FLOPs", "work * tokens"),
        _quantity("mfu", "MFU", "100 * model_work * tokens / (seconds * devices * peak)"),
    )
}  # fmt: skip
"""The columns that need no expression; ``macs`` are those of a forward pass under the rule."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A printed row.

    Attributes:
        target: the model of its cells, with sizes behind commas; empty where all letters are given.
        printed: cells by figure.
        name: its label, by default the target.
        set: changed fields and lengths of the target.
        given: numbers of expressions by letter: exact integers and quotients, or rounded texts.
        input: the shapes of the inputs of a user module.
        note: a sentence below the table.
        kind: chooses the expression of figures that have several.
        part: a regular expression of module paths, of which alone the letters are.
        verdicts: those other than reproduced, as typed; None where none are expected.
        explain: by figure, what prints it and why (``because``): a ``set`` and ``given``, or ``truncated`` digits, or
            entries to ``adjust``, each a number of ``times`` of those that a convention of formulas/conventions.py
            ``select``s, with some sizes ``dims`` replaced, and, where the cell was rounded again, the number that it
            was ``rounded_from``.
        baseline: the dense model that a routed one is compared with, as a target.
        quality: other printed cells by column name.
        line: where it stands in its file.
        model: its target with the sizes of ``set`` and the input, as bench/targets/target.py has it, of a user's table.
        unit: that of a user's number that is printed without one.
        side, length: the side of its images and its sequence length, 0 where no column says them.
    """

    target: str = ""
    printed: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, int | str] = field(default_factory=dict)
    input: str = ""
    note: str = ""
    kind: str = ""
    part: str = ""
    verdicts: Mapping[str, str] | None = None
    explain: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    baseline: str = ""
    quality: Mapping[str, str] = field(default_factory=dict)
    line: int = field(default=0, metadata=UNREAD)
    model: Any = field(default=None, metadata=UNREAD)
    unit: str = field(default="", metadata=UNREAD)
    side: int = field(default=0, metadata=UNREAD)
    length: int = field(default=0, metadata=UNREAD)

    def value_of(self, figure: Figure) -> str:
        """Return the expression of a cell."""
        return figure.value if isinstance(figure.value, str) else figure.value[self.kind]

    def number(self, figure: Figure) -> str:
        """Return a printed number; of a formula, the integer that it denotes at the row's letters, and 1 of none."""
        text = self.printed[figure.name]
        if text in EMPTY:
            return "1"
        return str(expression(text).value(self.given)) if figure.formula else text + self.unit


Cases = Callable[[Row, Mapping[str, Any]], Case]
"""Returns the case of a row with fields and lengths replaced."""


def evaluate(
    row: Row,
    figure: Figure,
    cases: Cases,
    changed: Mapping[str, Any] | None = None,
    given: Mapping[str, int | str] | None = None,
) -> Interval:
    """Return the values of a cell at the ends of its rounded inputs, with some fields or givens replaced.

    Raises ValueError, with the reason, for a cell that cannot be computed.
    """
    formula = expression(row.value_of(figure))
    inputs = {name: ends(value) for name, value in {**row.given, **(given or {})}.items()}
    letters: dict[str, Any] = {}
    if row.target:
        case = cases(row, changed or {})
        needed = (formula.letters - inputs.keys()) & LETTERS.keys()
        of_paths = ["part"] * bool(row.part) + sorted(needed & OF_PATHS)
        if of_paths and not case.has_paths:
            raise ValueError(f"{of_paths[0]} needs a preset; a count of {row.target} does not name its parts")
        form = case.ledger.select(lambda entry: re.search(row.part, entry.path)) if row.part else case.ledger
        # letters that the formula does not need are named where it needs others
        letters = dict.fromkeys(LETTERS) | {name: LETTERS[name](form, case, figure.multiplicity) for name in needed}
        if figure.name in PER_TOKEN and case.target_tokens is None:
            raise ValueError(f"{figure.name}: the input of {row.target} has no tokens")
        for name, reason in UNKNOWN.items():
            if name in needed and letters[name] is None:
                raise ValueError(reason.format(row=row, case=case, figure=figure))
    used = {name: both if name in formula.letters else both[:1] for name, both in inputs.items()}
    if sum(len(both) > 1 for both in used.values()) > MOST_ROUNDED:
        raise ValueError(f"{formula} has more than {MOST_ROUNDED} rounded numbers")
    values = [formula.value({**letters, **dict(zip(used, corner, strict=True))}) for corner in product(*used.values())]
    if max(map(abs, values)) > LARGEST:
        raise ValueError(f"{formula} is a number of more than {MOST_DIGITS} digits")
    return Interval(Fraction(min(values)), Fraction(max(values)))


def rounded_up(cells: Iterable[tuple[Figure, Interval, str]]) -> set[str]:
    """Return the names of the columns of a table that are rounded up throughout: MIN_WHOLE or more different cells,
    each printed by rounding up, some by that alone. A number that is one last digit too large is explained by chance
    where all others are those of both ways, half of the numbers each: of n cells with a chance of 2^(1 - n).
    """
    columns: dict[str, set[tuple[str, bool, bool]]] = {}
    for figure, value, text in cells:
        up, rounds = (replace(figure, upward=upward).prints(value, text) for upward in (True, False))
        columns.setdefault(figure.name, set()).add((text, up, up and not rounds))
    return {
        name
        for name, found in columns.items()
        if len({text for text, _, _ in found}) >= MIN_WHOLE
        and all(up for _, up, _ in found)
        and any(only for *_, only in found)
    }


def cut_off(cells: Iterable[tuple[Figure, Interval, str]]) -> set[str]:
    """Return the names of the columns of a table that are cut off throughout.

    Of such a column MIN_WHOLE or more different cells are printed by cutting off alone, none by rounding alone, and
    fewer by neither. A cell that both ways print decides nothing.
    """
    columns: dict[str, dict[tuple[bool, bool], set[str]]] = {}
    for figure, value, text in cells:
        cuts, rounds = (replace(figure, truncated=truncated).prints(value, text) for truncated in (True, False))
        columns.setdefault(figure.name, {}).setdefault((cuts, rounds), set()).add(text)
    return {
        name
        for name, found in columns.items()
        if len(found.get((True, False), ())) >= max(MIN_WHOLE, len(found.get((False, False), ())) + 1)
        and (False, True) not in found
    }
