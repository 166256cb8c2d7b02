"""``bench.macs --published torchvision``: its own table of operations, each row counted again and judged.

The table (torchvision.csv beside this file: ``num_params`` and ``_ops`` of every weight in torchvision 0.28, in the
order of its files) comes with the package, the models from torchvision itself.

One rule: the printed number is multiply-accumulates / 10^9 with three digits of one forward pass over one image, film
or pair of images, dispatched products alone. Two-stage detectors look again at boxes, whose number is data: there the
rule is everything else plus that number, which is solved for, times what one box costs.
"""

import csv
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headcount.bench.table import TONES, Column, Row, Section, Table

COUNTED_BY = ("torchvision", "torch")
"""The packages whose versions the table names."""
AGREES, WITH_BOXES, DIFFERS = "agrees", "agrees with boxes", "differs"
MOST_BOXES, MOST_OBJECTS = 1000, 100
"""What a detector looks at again after its first stage, and keeps after its second: its own limits."""


def published() -> list[dict[str, str]]:
    """The table's rows, as printed."""
    with Path(__file__).with_name("torchvision.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def printed(macs: int) -> str:
    """A number of multiply-accumulates as the table prints it."""
    return f"{round(macs / 1e9, 3)}"


def judged(ops: str, macs: int, per_box: int = 0, per_object: int = 0) -> tuple[str, str]:
    """The verdict on a printed number, and how it is made up where boxes are a part of it."""
    if printed(macs) == ops:
        return AGREES, "" if not per_box else "no box is looked at again"
    for objects in range(MOST_OBJECTS + 1) if per_object else (0,):
        for boxes in (MOST_BOXES, *range(1, MOST_BOXES)) if per_box else ():
            if printed(macs + boxes * per_box + objects * per_object) == ops:
                text = f"{macs:,} + {boxes:,} boxes x {per_box:,}"
                return WITH_BOXES, f"{text} + {objects} objects x {per_object:,}" if objects else text
    return DIFFERS, f"counted {printed(macs)}"


def sections() -> Iterator[Section]:
    """The table; raises EnvironmentMissing, before anything is counted, where torchvision cannot be used."""
    from headcount.bench.macs import torchvision_models

    models = torchvision_models.package()
    count = cache(lambda *of: torchvision_models.count(models, *of))
    layout = Table(
        "torchvision",
        "torchvision: its own operation counts again",
        [
            Column("weights", "weights", width=50),
            Column("kind", "kind", width=14, priority=3),
            Column("input", "input", width=18, priority=2),
            Column("params", "params", kind="int", width=13, of="params"),
            Column("ops_printed", "printed\nG", align="right", width=9, priority=0),
            Column("macs", "MACs", kind="int", width=17, of="MACs", priority=0),
            Column("verdict", "verdict", width=17, priority=0, tones=TONES),
        ],
        notes_above=[__doc__.split("\n\n")[2].replace("\n", " ")],
        note_column="verdict",
    )
    tally: dict[str, int] = {}
    rows = (_row(row, count(row["kind"], row["model"], row["weights"]), tally) for row in published())
    facts = {"source": "torchvision 0.28, Weights.meta['_ops']"} | {name: version(name) for name in COUNTED_BY}
    yield Section(layout, _told(rows, tally), facts=facts)


def _row(row: dict[str, str], counted: Any, tally: dict[str, int]) -> Row:
    verdict, because = judged(row["ops"], counted.macs, counted.per_box, counted.per_object)
    tally[verdict] = tally.get(verdict, 0) + 1
    failures = []
    if verdict == DIFFERS:
        failures.append(f"{row['weights']}: {row['ops']} printed, {because}")
    if counted.params != int(row["num_params"]):
        failures.append(f"{row['weights']}: {row['num_params']} parameters printed, {counted.params} counted")
    values = {
        "weights": row["weights"],
        "kind": row["kind"],
        "input": "x".join(map(str, counted.input)),
        "params": counted.params,
        "ops_printed": row["ops"],
        "macs": counted.macs,
        "verdict": verdict,
    }
    per = {"per_box_macs": counted.per_box, "per_object_macs": counted.per_object, "because": because}
    notes = [because] if because and verdict != DIFFERS else failures
    return Row(values, notes=notes, records=[{**values, **per, "params_printed": row["num_params"]}], failures=failures)


def _told(rows: Iterable[Row], tally: dict[str, int]) -> Iterator[Row]:
    """The rows, and a last one that sums up their verdicts."""
    yield from rows
    text = ", ".join(f"{number} {verdict}" for verdict, number in tally.items())
    blank = dict.fromkeys(("params", "macs")) | dict.fromkeys(("kind", "input", "ops_printed", "verdict"), "")
    yield Row({**blank, "weights": f"{sum(tally.values())} rows: {text}"}, records=[{"tally": dict(tally)}], total=True)
