"""Data beside a page: CSV of raw numbers, a table a file."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any


def table_as_csv(keys: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A header and a line for each row; unknown values are empty, fractions decimals."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_raw(row.get(key)) for key in keys] for row in rows)
    return stream.getvalue()


def _raw(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value
