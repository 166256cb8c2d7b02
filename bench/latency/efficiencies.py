"""headcount latency efficiencies: fit the expected time of kernels on stored records, and test it on others.

    python -m bench.latency efficiencies            fit, and write bench/performance/efficiencies.json
    python -m bench.latency efficiencies --check    exit 1 where the stored file is not what a fit gives

A row is a distinct measurement by CUDA graphs, the newest of those that were repeated. Half of the rows, by a hash of
their words, are fitted, and the other half is tested. The kernels of a row are those that its own commit launched
(kernels.csv, by python -m tests.models.stored_kernels).
"""

import argparse
import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

from headcount.bench import records
from headcount.bench.cli import Parser, add_output
from headcount.bench.column import Column, plural
from headcount.bench.errors import UsageError
from headcount.bench.hardware import HARDWARE
from headcount.bench.latency.table import median_ms
from headcount.bench.latency.timing_cases import TimingCase
from headcount.bench.output.files import write
from headcount.bench.performance import model
from headcount.bench.performance.kernel import UNLISTED, CoreSizes, Kernel
from headcount.bench.result import Result, Row, Table, columns_of, shown
from headcount.models.configs.layers import LAYERS

CARD = "h200"
RECORDS = "nvidia-h200"
KERNELS = "kernels.csv"
SHARE = {"kind": "fixed", "digits": 1, "scale": Fraction(1, 100), "priority": 0}
FAR = 1.10
"""Ratio of two measured times from which their order is tested."""
NEAR = 0.25
"""Relative error within which rows are counted."""
WANTED = {"median_error": 0.07, "within_share": 0.95, "order_share": 0.97}
"""Figures that the tested half must reach: the most of the first, the least of the others."""
WANTED_LENGTH = 0.10
"""Most median error of a length that is left out of the fit."""


@dataclass(frozen=True)
class MeasuredRow:
    """A distinct measurement: its words, its newest record, microseconds, cells, and kernels at its commit."""

    key: str
    record: records.LatencyRecord
    us: float
    cells: frozenset[str]
    kernels: tuple[Kernel, ...]

    @property
    def is_fitted(self) -> bool:
        """Whether constants are fitted on the row; it is tested else."""
        return int(hashlib.sha256(self.key.encode()).hexdigest(), 16) % 2 == 0


@dataclass(frozen=True)
class EvidenceRow(Row):
    """The errors of the expected time on rows that were not fitted, and how often the order of two is right."""

    tested: str = shown(Column, "tested on", priority=0)
    rows: int = shown(Column, "rows", kind="int", priority=0)
    median_error: float = shown(Column, "median\nerror", unit="%", **SHARE)
    within_share: float = shown(Column, "within\n25 %", unit="% of rows", **SHARE)
    ordered: int = shown(Column, "pairs in\nright order", kind="int", priority=0)
    pairs: int = shown(Column, "of", kind="int", priority=0)

    @property
    def order_share(self) -> float:
        """The share of pairs in the right order."""
        return self.ordered / self.pairs if self.pairs else 1.0


@dataclass(frozen=True)
class ConstantRow(Row):
    """A fitted constant."""

    constant: str = shown(Column, "constant", priority=0)
    value: float = shown(Column, "value", kind="fixed", digits=3, priority=0)
    unit: str = shown(Column, "unit", priority=0)
    failures: Sequence[str] = ()


def key_of(record: records.LatencyRecord) -> str:
    """Return the words of a measurement."""
    words = record.layer, record.implementation, record.seq_len, record.batch_size, record.dtype, record.which
    return " ".join(map(str, (*words, record.routing)))


@cache
def stored_rows(folder: Path) -> tuple[list[MeasuredRow], dict[str, str]]:
    """Return the distinct rows of a folder whose kernels a run on meta tensors gives, with those that are listed, and
    why each other one is not used, by key."""
    newest: dict[str, records.LatencyRecord] = {}
    cells: dict[str, set[str]] = defaultdict(set)
    unused: dict[str, str] = {}
    # the first one of a key is the newest
    for record in sorted(_timed(folder), key=lambda record: record.environment["time"], reverse=True):
        key = key_of(record)
        if record.implementation in UNLISTED or record.timed_by != records.GRAPH:
            unused[key] = UNLISTED.get(record.implementation, "not timed by a CUDA graph")
            continue
        cells[key].add(record.cell)
        newest.setdefault(key, record)
    kernels = read_kernels(folder / KERNELS)
    rows = []
    for key, record in newest.items():
        own = kernels.get((record.environment["commit"][:10], key), ())
        rows.append(MeasuredRow(key, record, 1000 * median_ms(record), frozenset(cells[key]), tuple(own)))
    return rows, {key: reason for key, reason in unused.items() if key not in newest}


def _timed(folder: Path) -> Iterator[records.LatencyRecord]:
    for path in sorted(folder.glob("*.jsonl")):
        for record in records.read_latencies(path)[0]:
            if record.status == records.TIMED and not record.smoke and not record.again:
                yield record


def listed_rows(folder: Path) -> tuple[list[MeasuredRow], dict[str, str]]:
    """Return the rows that can be fitted and tested, with their kernels, and why each other one is not used."""
    rows, unused = stored_rows(folder)
    unlisted = {row.key: "its kernels are not listed" for row in rows if not row.kernels}
    return [row for row in rows if row.kernels], unused | unlisted


def read_kernels(path: Path) -> dict[tuple[str, str], list[Kernel]]:
    """Return the kernels of each commit and key."""
    found: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                core = CoreSizes(*map(int, line["core"].split())) if line["core"] else None
                bytes_, macs, ordered, times = (int(line[name]) for name in ("bytes", "macs", "sorted", "times"))
                kernel = Kernel(line["kernel"], line["kind"], bytes_, macs, core, ordered, times, line["source"])
                found[line["commit"], line["case"]].append(kernel)
    return found


def changed_keys(folder: Path) -> list[str]:
    """Return the rows that launch other kernels today than when they were measured, by their words.

    Other ones by operator, bytes, products, or the code and the launch of a Triton kernel.
    """
    rows, _ = listed_rows(folder)
    return sorted(row.key for row in rows if _count(_kernels_today(row.record)) != _count(row.kernels))


def _kernels_today(record: records.LatencyRecord) -> list[Kernel]:
    from headcount.bench.latency.estimate import kernels_of

    shape = record.seq_len, record.batch_size, record.dtype, record.which, record.device, record.routing
    case = TimingCase(record.subject, record.name, *shape)
    spec = next((spec for spec in case.impls(any_device=True) if spec.name == record.layer), None)
    return [] if spec is None else kernels_of(case, replace(spec, impl=record.implementation))[0]


def _count(kernels: Iterable[Kernel]) -> Counter[Kernel]:
    found: Counter[Kernel] = Counter()
    for kernel in kernels:
        found[replace(kernel, times=1)] += kernel.times
    return found


# The fit


def fit(rows: Sequence[MeasuredRow]) -> dict[str, float]:
    """Return the constants that minimise the sum of absolute relative errors on ``rows``, each within its bounds."""
    sums = [_sums(row) for row in rows]
    names = sorted(set().union(*sums))
    amounts = np.array([[own.get(name, 0.0) / row.us for name in names] for own, row in zip(sums, rows, strict=True)])
    low, high, _ = zip(*map(_constant, names), strict=True)
    found = _least_absolute(amounts, np.ones(len(rows)), np.array(low), np.array(high))
    values = zip(names, map(float, found), strict=True)
    return {name: round(value if name in model.PRICES else 1 / value, 4) for name, value in values}


def _constant(name: str) -> tuple[float, float, str]:
    """Return the bounds of what is fitted for a constant, an efficiency's reciprocal or a price, and its unit."""
    worst, best = model.EFFICIENCY
    return model.PRICES.get(name, (1 / best, 1 / worst, "of the peak"))


def _sums(row: MeasuredRow) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for kernel in row.kernels:
        for name, amount in model.parts(kernel, HARDWARE[CARD], row.record.dtype):
            sums[name] += kernel.times * amount
    return sums


def _least_absolute(amounts: np.ndarray, wanted: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return x within bounds that minimises the sum of |amounts x - wanted|, by reweighted least squares."""
    weights = np.ones(len(wanted))
    for _ in range(25):
        found = _least_squares(amounts * weights[:, None], wanted * weights, low, high)
        weights = 1 / np.sqrt(np.maximum(abs(amounts @ found - wanted), 0.02))
    return found


def _least_squares(amounts: np.ndarray, wanted: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return x within bounds that minimises the sum of squares of amounts x - wanted, one number after another."""
    found = np.clip(np.full(len(low), 1.5), low, high)
    rest, norms = wanted - amounts @ found, (amounts * amounts).sum(0) + 1e-12
    for _ in range(400):
        before = found.copy()
        for place in range(len(found)):
            best = found[place] + amounts[:, place] @ rest / norms[place]
            value = min(max(best, low[place]), high[place])
            rest -= amounts[:, place] * (value - found[place])
            found[place] = value
        if abs(found - before).max() < 1e-6:
            break
    return found


# The test


def expected_us(rows: Iterable[MeasuredRow], values: Mapping[str, float]) -> dict[str, float]:
    """Return the expected microseconds of each row by its key."""
    fitted = model.Efficiencies(CARD, values, {})
    return {row.key: fitted.expected_us(row.kernels, HARDWARE[CARD], row.record.dtype) for row in rows}


def evidence(title: str, rows: Sequence[MeasuredRow], fitted: Callable[[MeasuredRow], bool]) -> EvidenceRow | None:
    """Return the errors on the rows that are not ``fitted``, of constants fitted on those that are."""
    tested = [row for row in rows if not fitted(row)]
    if not tested:
        return None
    us = expected_us(rows, fit([row for row in rows if fitted(row)]))
    errors = [abs(us[row.key] / row.us - 1) for row in tested]
    ordered, pairs = _count_ordered(rows, us, {row.key for row in tested})
    within = sum(error <= NEAR for error in errors) / len(errors)
    return EvidenceRow(title, len(tested), round(median(errors), 3), round(within, 3), ordered, pairs)


def _count_ordered(rows: Sequence[MeasuredRow], us: Mapping[str, float], tested: set[str]) -> tuple[int, int]:
    """Return how many pairs of one case, at least one tested, are in the order of their measured times, and of all."""
    ordered = pairs = 0
    for a, b in combinations(rows, 2):
        is_far = max(a.us, b.us) > FAR * min(a.us, b.us)
        if is_far and a.cells & b.cells and {a.key, b.key} & tested:
            pairs += 1
            ordered += (a.us > b.us) == (us[a.key] > us[b.key])
    return ordered, pairs


def all_evidence(rows: Sequence[MeasuredRow]) -> list[EvidenceRow]:
    """Return the errors on the tested half, and on each length and each layer that is left out whole."""
    found = [evidence("the half that was not fitted", rows, lambda row: row.is_fitted)]
    for length in sorted({row.record.seq_len for row in rows}):
        found.append(evidence(f"T {length}, left out", rows, lambda row, out=length: row.record.seq_len != out))
    for name in sorted({row.record.name for row in rows if row.record.name in LAYERS}):
        found.append(evidence(f"{name}, left out", rows, lambda row, out=name: row.record.name != out))
    return [row for row in found if row]


def missed(found: Sequence[EvidenceRow]) -> list[str]:
    """Return the figures that are not as wanted."""
    first, lines = found[0], []
    if first.median_error > WANTED["median_error"]:
        lines.append(f"missed: median error {first.median_error:.1%}, wanted {WANTED['median_error']:.0%}")
    for name, what in (("within_share", "within 25 %"), ("order_share", "right order")):
        if getattr(first, name) < WANTED[name]:
            lines.append(f"missed: {what} {getattr(first, name):.1%}, wanted {WANTED[name]:.0%}")
    for row in found[1:]:
        if row.tested.startswith("T ") and row.median_error > WANTED_LENGTH:
            lines.append(f"missed: {row.tested}: median error {row.median_error:.1%}, wanted {WANTED_LENGTH:.0%}")
    return lines


def stored_file() -> Path:
    """Return the file of the constants."""
    return Path(model.__file__).with_name(model.STORED)


def constants(values: Mapping[str, float]) -> Table[ConstantRow]:
    """Return the constants as a table."""
    rows = [ConstantRow(name, value, _constant(name)[2]) for name, value in values.items()]
    return Table("constants", "Constants", columns_of(ConstantRow), rows)


def evidence_table(found: Sequence[EvidenceRow], notes: Sequence[str] = ()) -> Table[EvidenceRow]:
    """Return errors on rows that were not fitted as a table."""
    return Table("evidence", "Errors of the expected time", columns_of(EvidenceRow), found, notes)


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the command line."""
    out = Parser(prog=prog, description=(__doc__ or "").replace("python -m bench.latency efficiencies", prog))
    out.add_argument("--check", action="store_true", help="compare with the stored file, and write nothing")
    add_output(out)
    return out


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result:
    """Return the constants and their evidence, written or compared with what is stored."""
    folder = records.shipped() / RECORDS
    rows, unused = listed_rows(folder)
    fitted = [row for row in rows if row.is_fitted]
    if not fitted:
        raise UsageError(f"no row of {folder} has listed kernels")
    values, found = fit(fitted), all_evidence(rows)
    stored = {"card": CARD, "records": RECORDS, "values": values, "evidence": vars(found[0])}
    text, path = json.dumps(stored, indent=1) + "\n", stored_file()
    printed = constants(values)
    is_stale = args.check and not (path.exists() and path.read_text(encoding="utf-8") == text)
    if is_stale:
        wrong = f"{path.name} is stale; headcount latency efficiencies writes it"
        printed = replace(printed, rows=[replace(printed.rows[0], failures=[wrong]), *printed.rows[1:]])
    if not args.check:
        write(path, text)
    notes = [f"{plural(len(fitted), 'row')} fitted; {plural(len(unused), 'row')} not used.", *missed(found)]
    state = "stale" if is_stale else "as stored" if args.check else "written"
    return Result([printed, evidence_table(found, notes)], lambda: f"{plural(len(values), 'constant')}, {state}.")
