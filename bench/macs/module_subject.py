"""A user's module as something to compare: ``FILE.py:FUNCTION,NAME=INTEGER,…``, counted in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sympy import sympify

from headcount.bench.errors import UsageError
from headcount.bench.isolated.ask import ask
from headcount.bench.macs import module
from headcount.formulas.ledger import Entry, Ledger, Size
from headcount.formulas.symbols import symbol


@dataclass(frozen=True)
class ModuleSubject:
    """The module that ``spec`` builds for ``sizes``. It has no closed form but the one that running it gives."""

    name: str
    preset: str
    sizes: Mapping[str, int]
    ledger: Ledger

    @property
    def lengths(self) -> Mapping[str, int]:
        """The sizes that the function was given."""
        return self.sizes

    def letters(self) -> tuple[str, ...]:
        """T, where the function takes it."""
        return tuple(letter for letter in ("T",) if letter in self.sizes)

    def uneven(self) -> tuple[str, ...]:
        """None: a module's sizes are what its function makes of them."""
        return ()

    def ledger_in(self, letter: str, size: Size) -> Ledger:
        """The derived polynomials in ``letter`` as a ledger; UsageError where the count is no polynomial."""
        rest = {name: value for name, value in self.sizes.items() if name != letter}
        start = {letter: max(2, self.sizes[letter])}
        found = ask("derive", self.preset, settings=rest, base=start, step={letter: 1})
        if found["witness"]:
            raise UsageError(f"{self.name} has no closed form in {letter}: {found['witness']}")
        forms = {kind: sympify(text, locals={letter: symbol(letter)}) for kind, text in found["by_kind"].items()}
        return Ledger(tuple(Entry("", kind, {letter: form}) for kind, form in forms.items()))

    def at(self, letter: str, size: int) -> "ModuleSubject":
        """The module built with another size."""
        return of_module(self.preset, {**self.sizes, letter: size})

    def counted(self, counters: Sequence[str], device: str | None) -> dict[str, int | str]:
        """The right count, whichever counters the other side is read by."""
        return dict.fromkeys(counters, self.ledger.macs)


def of_module(spec: str, sizes: Mapping[str, int]) -> ModuleSubject:
    """The module that ``spec`` builds, counted. Raises UsageError and CounterError as bench.module.count does."""
    answer = module.count(spec, dict(sizes), [])
    products = Ledger.from_records(answer["ledger"])
    # A weight without an operation of its own: whichever product uses it is counted above.
    weights = [Entry(p["path"], "elementwise", {"n": 0}, weight={"n": p["params"]}) for p in answer["params"]]
    name = ",".join((spec, *(f"{key}={value}" for key, value in sizes.items())))
    return ModuleSubject(name, spec, sizes, Ledger((*products, *weights)))
