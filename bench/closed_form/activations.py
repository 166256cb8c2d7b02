"""Bytes of a configuration's activations as polynomials of B and T: measured at a few lengths, proved at two others."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import lcm

from headcount.bench.closed_form.case import ELEMENT_BYTES
from headcount.bench.closed_form.observe import IDS, decoder_of
from headcount.bench.closed_form.solve import Lengths, polynomial
from headcount.bench.closed_form.store import PREFILL_PEAK, TYPES
from headcount.bench.closed_form.terms import Bytes, Range
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import run_user_code
from headcount.bench.trace.memory import measure_activations

COLUMNS = {
    "saved_bytes": ("saved_bytes", True),
    "peak_forward_bytes": ("peak_bytes", False),
    "peak_training_bytes": ("peak_bytes", True),
    PREFILL_PEAK: ("peak_bytes", False),
}
"""Field of trace.memory.Activations, and whether of a training step, by column."""
TOKENS = (8, 19, 37)
"""Tokens of the runs that give a polynomial, behind those of the window."""
LATER = 500
"""Tokens behind the window where the largest of several operations is the same at every further length."""


def derive(target: Target, name: str, types: str = "") -> Bytes:
    """Return the bytes of the column ``name`` of a configuration; without ranges where they are no polynomial.

    ``types``: TYPES for numbers of the types that they have in a run, which are wider in norms and softmax.
    """
    decoder = decoder_of(target)
    field, training = COLUMNS[name]
    is_prefill = name == PREFILL_PEAK
    more = decoder.prefill_options if is_prefill else {}

    def measured(at: Lengths) -> int:
        ids = decoder.ids(at.B, at.T)
        options = {"training": training, "element_bytes": None if types == TYPES else ELEMENT_BYTES}
        options |= {"cache_of": decoder.cache_of} if is_prefill else {}
        found = run_user_code(
            f"a run at {at}", lambda: measure_activations(decoder.module, (), {IDS: ids} | more, **options)
        )
        return getattr(found, field)

    window, most = max(decoder.windows, default=0), decoder.positions
    ranges = []
    if window > TOKENS[-1]:
        ranges.append(_range(measured, 0, window, window))
    for start in (window, 8 * window + LATER):
        if most is None or start + TOKENS[-1] < most:
            beyond = _range(measured, start, None, most)
            if beyond is not None:
                ranges.append(beyond)
                break
    return Bytes(tuple(one for one in ranges if one is not None))


def _range(measured: Callable[[Lengths], int], start: int, stop: int | None, most: int | None) -> Range | None:
    """Return the polynomial of lengths from ``start`` on; None where two further lengths do not have it.

    One sequence has a polynomial of its own where a run with one copies other tensors than a run with several.
    """
    measured = cache(measured)
    alone = _fitted(measured, start, stop, (1,))
    for batches in ((1, 2), (2, 3)):
        found = _fitted(measured, start, stop, batches)
        found = found if 1 in batches else replace(found, alone=alone)
        # a form of one sequence is proved at both lengths, as that of several
        places = [Lengths(B, T) for B in (max(batches) + 1, 1) for T in (start + 29, 4 * start + 61)]
        if most is not None:
            places = [Lengths(at.B, min(at.T, most)) for at in places]
        if all(found.value(at.B, at.T) == measured(at) for at in places):
            return found
    return None


def _fitted(measured: Callable[[Lengths], int], start: int, stop: int | None, batches: tuple[int, ...]) -> Range:
    """Return the polynomial through the values of ``batches`` sequences at three lengths."""
    tokens = [start + more for more in TOKENS]
    values = {at: measured(at) for B in batches for T in tokens for at in [Lengths(B, T)]}
    first, more = polynomial(values, batches, tokens)
    over = lcm(*(value.denominator for value in (*first, *more)))
    whole = (tuple(int(over * value) for value in part) for part in (first, more))
    return Range(start + 1, stop, *whole, over)
