"""Columns of tables: head, unit, digits, and how a raw value is printed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Integral
from typing import Any, Literal

DASH = "–"
"""The cell of an unknown value, None."""
GOOD, FAIR, BAD = "good", "fair", "bad"
"""Meanings of verdicts, which have colours in a terminal."""
TONES = {
    **dict.fromkeys(("reproduced", "agrees", "equal", "faster"), GOOD),
    **dict.fromkeys(("explained", "no rule found", "not reproducible"), FAIR),
    **dict.fromkeys(("unexplained", "not counted", "differs", "failed", "wrong", "slower"), BAD),
}
"""The meaning of each verdict."""
INTERVAL = ("value", "low", "high")
"""Keys of a mapping in a column of intervals."""


def escape_controls(text: str, kept: str = "\n\t") -> str:
    """Return ``text`` with control characters but those ``kept`` escaped.

    So no name can move the cursor or colour a line; in a cell, which keeps none, no name can end its row.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True)
class Column:
    """One column: the key of its raw values, its head, and how a value is printed.

    Args:
        key: name of the values in a row, in CSV and in JSON.
        head: title, of one or several lines.
        unit: last line of the head. It includes ``scale``: "GMACs" for 10**9.
        kind: ``text`` prints str(value); ``int`` an integer; ``fixed`` value / scale with ``digits`` decimals, rounded
            half to even without floats; ``interval`` a mapping with value, low and high.
        scale: divisor of values.
        digits: decimals.
        width: characters that the text renderer reserves where rows are printed one by one, at least the head's.
        align: side of the cells, by default left for texts and right for numbers.
        sign: print a plus before positive numbers.
        words: cells may be texts instead of numbers.
        priority: where a table does not fit, columns with the largest priority are hidden first. Columns of priority 0
            and the first column are never hidden.
        wraps: least width at which a text may be broken into lines, 0 where it may not.
        of: what an integer counts (MACs, FLOPs, params, bytes, elements or tokens), which may be printed in M or G.
        tones: GOOD, FAIR or BAD by verdict.
        code: a name from a user's program, printed as code in markdown and escaped for spreadsheets.
        formula: texts in dollar signs are formulas of TeX; in other columns a dollar is a dollar.
        value: returns the raw value of a row; None for the row's attribute of the name ``key``.
    """

    key: str
    head: str
    unit: str = ""
    kind: Literal["text", "int", "fixed", "interval"] = "text"
    scale: int | Fraction = 1
    digits: int = 0
    width: int = 0
    align: Literal["left", "right"] | None = None
    sign: bool = False
    words: bool = False
    priority: int = 1
    wraps: int = 0
    of: str = ""
    tones: Mapping[str, str] = field(default_factory=dict)
    code: bool = False
    formula: bool = False
    value: Callable[[Any], Any] | None = None

    def read(self, row: Any) -> Any:
        """Return the raw value of a row."""
        return self.value(row) if self.value else getattr(row, self.key)

    @property
    def head_lines(self) -> list[str]:
        """The head, and the unit where there is one, line by line."""
        return [*self.head.split("\n"), *([self.unit] if self.unit else [])]

    @property
    def side(self) -> str:
        """The side on which cells are aligned: texts left, numbers right."""
        return self.align or ("left" if self.kind == "text" else "right")

    def text(self, value: Any) -> str:
        """Return the cell for a raw value. Raises TypeError where an ``int`` column gets anything but an integer."""
        if value is None:
            return DASH
        if self.kind == "text" or (self.words and isinstance(value, str)):
            return escape_controls(str(value), kept="")
        if self.kind == "interval":
            value, low, high = (self._number(value[name]) for name in INTERVAL)
            return f"{value} [{low}, {high}]"
        if self.kind == "int" and (not isinstance(value, Integral) or isinstance(value, bool)):
            raise TypeError(f"column {self.key!r} holds integers, not {value!r}")
        return self._number(value)

    def _number(self, value: Any) -> str:
        units = round(Fraction(value) / self.scale * 10**self.digits)
        whole, decimals = divmod(abs(units), 10**self.digits)
        sign = "-" if units < 0 else "+" if self.sign and units > 0 else ""
        if value and not units:
            # a value that is not 0 is never printed as 0, but as a bound
            least = f"{1 / 10**self.digits:.{self.digits}f}"
            return f">-{least}" if value < 0 else f"<{least}"
        if self.of and not units:
            return "0"
        return f"{sign}{whole:,}" + (f".{decimals:0{self.digits}}" if self.digits else "")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: "1 row", "2 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def macs_column(key: str, head: str, **options: Any) -> Column:
    """Return a column of MACs."""
    return Column(key, head, kind="int", of="MACs", **options)


def params_column(key: str, head: str, **options: Any) -> Column:
    """Return a column of parameters."""
    return Column(key, head, kind="int", of="params", **options)


def bytes_column(key: str, head: str, **options: Any) -> Column:
    """Return a column of bytes."""
    return Column(key, head, unit="bytes", kind="int", of="bytes", **options)
