"""Data sheets of named hardware: peak rates and memory bandwidth as the maker states them. Importable without torch.

These are figures of data sheets (hardware.toml), never measurements; what is computed from them is an estimate. Each
figure names where it was read.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from headcount.bench.errors import UsageError
from headcount.formulas.ledger import flops
from headcount.models.configs.numbers import LONGEST, TYPE_BITS, parse_float
from headcount.models.configs.suggest import choices, join_or

TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
"""The dtype of a data sheet that torch multiplies in unless TF32 is allowed, by torch's name."""
OTHER_DTYPES = {
    "half": "fp16", "float": "fp32", "double": "fp64", "float8": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
    "float6": "fp6", "float4": "fp4", "float4_e2m1fn_x2": "fp4",
}  # fmt: skip
"""The dtype of a data sheet by further names."""
LEAST = 1e9
"""The least FLOP/s of a peak; fewer are a number whose unit was forgotten."""
RATE = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?) *"
    r"(?P<unit>[kmgt]i?|p|(?:kilo|mega|giga|tera|peta)(?=flop|mac))?"
    r"(?: *(?P<what>flop|mac)s?(?: ?(?:/|per) ?s(?:ec(?:ond)?)?)?)?(?: +(?P<dtype>[^()]*|\([^()]*\)))?",
    re.IGNORECASE,
)
"""A rate: a number, its unit, what it counts, per second, and a dtype."""
TRAINED_IN = ("bf16", "fp16")
"""Dtypes in which models are trained; a card whose peak is asked for without one has the first that it has."""


@dataclass(frozen=True)
class Hardware:
    """One data sheet: dense TFLOP/s by dtype, bytes of memory per second; bytes of memory, multiprocessors, bytes per
    second of the links of a node and of a bridge between two cards, and the cards of a node, None where not read; bytes
    per second to other nodes, which no data sheet states, None where not given.

    hardware.toml describes each field.
    """

    name: str
    devices: tuple[str, ...]
    tflops: Mapping[str, float]
    bytes_per_s: float
    source: str
    address: str
    read: Mapping[str, Sequence[str]]
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    link_bytes_per_s: float | None = None
    bridge_bytes_per_s: float | None = None
    node_cards: int | None = None
    between_bytes_per_s: float | None = None

    @property
    def short_name(self) -> str:
        """The name without the maker: ``H100 SXM``."""
        return self.name.partition(" ")[2]

    @cached_property
    def _pattern(self) -> re.Pattern:
        """What names the card: words of its names and its memory, the model among them; or the maker alone."""
        words = {_plain(word) for name in (self.name, *self.devices) for word in re.split(r"[\s-]", name)}
        if self.memory_bytes:
            words.add(f"{self.memory_bytes // 10**9}gb")
        some = f"(?:{'|'.join(sorted(words))})*"
        maker, *names = map(_plain, self.name.split())
        # the word with a number: RTX A6000
        model = next(word for word in names if re.search(r"\d", word))
        return re.compile(f"{maker}|{some}{model}{some}")

    @cached_property
    def macs_per_s(self) -> Mapping[str, float]:
        """Multiply-accumulates per second by torch's dtype, of those that the data sheet states."""
        return {torch: self.tflops[dtype] * 1e12 / 2 for torch, dtype in TORCH_DTYPES.items() if dtype in self.tflops}

    def check(self, dtype: str, rates: Mapping[str, float] | None = None) -> None:
        """Raise UsageError where the data sheet states no rate of ``dtype``: torch's name, or a key of ``rates``."""
        known = self.macs_per_s if rates is None else rates
        if dtype not in known:
            raise UsageError(
                f"the data sheet of {self.name} states no rate of {dtype!r}; choose from {', '.join(known)}"
            )


@dataclass(frozen=True)
class Peak:
    """A peak rate in FLOP/s, with the hardware and the dtype that it is of; empty where not stated."""

    flops_per_s: float
    name: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.dtype, f"{self.flops_per_s / 1e12:g} TFLOP/s")))


_SHEETS = tomllib.loads(files("headcount.bench").joinpath("hardware.toml").read_text("utf-8"))
SOURCES: dict[str, dict[str, str]] = _SHEETS.pop("sources")
"""Places where figures were read, by key: the ``address``, and in ``read`` the place and values there."""
HARDWARE = {key: Hardware(**{**fields, "devices": tuple(fields["devices"])}) for key, fields in _SHEETS.items()}
"""Data sheets by key."""


def by_device(device: str) -> Hardware | None:
    """Return the data sheet of the card that torch calls ``device``; None for every other name."""
    return next((found for found in HARDWARE.values() if device in found.devices), None)


def by_name(text: str) -> Hardware | None:
    """Return the data sheet of a card by its name, with or without the maker, or torch's; None for every other text.

    Some words are enough where one card alone has them, ``H200``, in any order.
    """
    found = cards_of(text)
    return found[0] if len(found) == 1 else None


def cards_of(text: str) -> list[Hardware]:
    """Return the cards that a text may name: those that have all its words, the model among them.

    Words are in any order, with or without spaces between them. A memory is that of the data sheet, or of a name that
    torch gives the card, ``H100 SXM 80GB``.
    """
    return [card for card in HARDWARE.values() if card._pattern.fullmatch(_plain(text))]


def _unknown(text: str) -> str:
    """Return what is wrong with the name of a card: several have it, or none."""
    several = [card.short_name for card in cards_of(text)]
    if several:
        return f"{text!r} is {join_or(several)}"
    return f"unknown card {text!r}; {choices(text, names())}"


def find_card(text: str, dtype: str = "bfloat16") -> Hardware:
    """Return the data sheet of a card by its name.

    Raises UsageError with the nearest names, and for a card without a rate of ``dtype``, by torch's name.
    """
    found = by_name(text)
    if found is None:
        raise UsageError(_unknown(text))
    found.check(dtype)
    return found


def names() -> list[str]:
    """Return the names of the cards, without the maker."""
    return [one.short_name for one in HARDWARE.values()]


def parse_peak(value: Any) -> Peak:
    """Return the peak of a card and a dtype, ``H100 SXM bf16``, or of a rate, ``989 TFLOP/s bf16``, ``989T``, 989e12.

    A card has its name here or torch's, ``NVIDIA H100 80GB HBM3``; alone it has the rate of TRAINED_IN. A name of
    several cards of the same rate, ``A100``, is that rate's. A rate is in FLOP/s, of MAC/s twice as many. A dtype may
    have torch's name, ``bfloat16`` or ``torch.bfloat16``, and may be the second of a pair.

    Raises UsageError with the nearest names, for an unknown unit or dtype, and for less than LEAST.
    """
    text = " ".join(map(str, value if isinstance(value, tuple | list) else [value])).strip()
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"a peak is a number of FLOP/s above 0, not {value}")
    if not re.match(r"[+-]?\.?\d", text):
        return _named_peak(text)
    found = RATE.fullmatch(text)
    try:
        unit = (found["unit"] or "").capitalize() if found else ""
        if len(unit) > 2:
            # a prefix that is written out
            unit = unit[0]
        rate = parse_float(found["number"] + ("k" if unit == "K" else unit)) if found else None
    except ValueError:
        rate = None
    if found is None or rate is None:
        raise UsageError(f"malformed peak {text[:LONGEST]!r}; write FLOP/s and a dtype, as {EXAMPLES}")
    dtype = _sheet_dtype((found["dtype"] or "").strip("()"), text)
    if (found["what"] or "").lower() == "mac":
        rate = flops(rate)
    if rate < LEAST:
        raise UsageError(f"peak {text!r} is {rate:g} FLOP/s, below {LEAST:g}; the unit is FLOP/s: write {EXAMPLES}")
    return Peak(rate, dtype=dtype)


EXAMPLES = "'989 TFLOP/s', 989T, '989T bf16' or 989e12"
"""Rates as they are written."""


def _named_peak(text: str) -> Peak:
    """Return the peak of a card, with or without a dtype."""
    cards, word = cards_of(text), ""
    if not cards:
        name, _, word = text.rpartition(" ")
        cards = cards_of(name) if _sheet_dtype(word.strip("()")) in _dtypes() or by_name(name) else []
    if not cards:
        wrong = "no peak" if text in ("", "None") else f"unknown card {text!r}"
        raise UsageError(
            f"{wrong}; {choices(text, names())}, with or without a dtype as in 'H100 SXM bf16', or FLOP/s such as 165T "
            "or 989T"
        )
    dtype = _sheet_dtype(word.strip("()")) or next(dtype for dtype in TRAINED_IN if dtype in cards[0].tflops)
    if len(cards) == 1:
        cards[0].check(dtype, cards[0].tflops)
    rates = {card.tflops.get(dtype, 0) for card in cards}
    if len(rates) > 1 or not all(rates):
        named = text.removesuffix(word).strip()
        raise UsageError(f"peak {text!r}: {named!r} is {join_or([card.short_name for card in cards])}")
    name = cards[0].short_name if len(cards) == 1 else _common_words(cards)
    return Peak(rates.pop() * 1e12, name, dtype)


def _common_words(cards: Sequence[Hardware]) -> str:
    """Return the words that the names of all cards have."""
    first, *others = [card.short_name.split() for card in cards]
    return " ".join(word for word in first if all(word in other for other in others))


def _dtypes() -> list[str]:
    """Return the dtypes of all data sheets."""
    return [*dict.fromkeys(dtype for card in HARDWARE.values() for dtype in card.tflops)]


def _sheet_dtype(name: str, peak: str = "") -> str:
    """Return the name of a dtype in data sheets, of torch's or any other spelling.

    Raises UsageError for an unknown one of the text of a ``peak``.
    """
    plain = name.lower().removeprefix("torch.")
    found = {**TORCH_DTYPES, **OTHER_DTYPES}.get(plain, plain)
    stated = _dtypes()
    if peak and found not in ("", *stated, *TYPE_BITS):
        raise UsageError(
            f"peak {peak!r}: {name!r} is no unit and no dtype; units are k to P with FLOP/s, FLOPS or MAC/s, dtypes "
            f"{', '.join(stated)}"
        )
    return found


def _plain(name: str) -> str:
    """Return a name without spaces and hyphens, in lower case, and SXM without its generation."""
    return re.sub(r"[\s_-]|(?<=sxm)\d\b", "", name.lower())
