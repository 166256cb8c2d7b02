"""A ledger as table rows: sizes as text, repeated layers folded, paths cut at a depth."""

import re
from collections.abc import Iterable
from dataclasses import replace

from headcount.formulas.ledger import Entry, Ledger


def folded(path: str) -> str:
    """A module path with ``*`` for every index: ``layers.*.self_attn``."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)


def cut(path: str, depth: int | None) -> str:
    """The first ``depth`` names of a path; all of them for None."""
    return path if depth is None else ".".join(path.split(".")[:depth])


def sizes(entry: Entry) -> str:
    """The named sizes of an entry: ``6 x T=10 i=512 j=512``."""
    # a factor that is a number, as the two of a scaling and an addition, has no letter
    text = " ".join(str(size) if letter.isdigit() else f"{letter}={size}" for letter, size in entry.dims.items())
    return f"{entry.times} x {text}" if entry.times != 1 else text


def merged(entries: Iterable[Entry], depth: int | None) -> Ledger:
    """Entries of the same folded, cut path, kind and sizes as one with all repetitions.

    With a ``depth`` the sizes go, because different products meet at one path: what is left is ``{"i": MACs}``.
    """
    times: dict[tuple, Entry] = {}
    for entry in entries:
        entry = replace(entry, path=cut(folded(entry.path), depth))
        if depth is not None:
            key = (entry.path, entry.kind)
            old = times.get(key)
            entry = replace(entry, dims={"i": entry.macs + (old.macs if old else 0)}, times=1)
        else:
            key = (entry.path, entry.kind, tuple(entry.dims.items()))
            old = times.get(key)
            entry = replace(entry, times=entry.times + (old.times if old else 0))
        times[key] = entry
    return Ledger(tuple(times.values()))
