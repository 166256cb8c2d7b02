"""What another version of ptflops reads of the same modules, from a stored run."""

from collections.abc import Mapping
from typing import Any

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.data_files import table_as_csv
from headcount.reports.facts import Facts

RECORD, DATA = "ptflops.json", "ptflops.csv"
COMMAND = "make ptflops"
NOT_RUN = f"Not stored: `{COMMAND}` makes a record."


def page(facts: Facts) -> str:
    """How many modules each version reads exactly, and the readings of the models that differ between them."""
    found = facts.stored_json(RECORD)
    if found is None:
        return NOT_RUN
    exact, readings = found["exact"], found["readings"]
    alike = sum(len({one["macs"][name] for one in readings}) == 1 for name in exact)
    about = (
        f"{len(exact)} modules, the audit's spellings and the models of the MoA tables, by the default backend on the "
        f"CPU, with torch {found['torch']}: {', '.join(_exactly(one, exact) for one in readings)}; {alike} are read "
        "alike by all. Up to 0.6 ptflops saw modules alone: what is no module of a known type, a product of a "
        "function, an operator or a bare parameter, is 0 there, and biases of linear layers are counted. The models "
        f"are below, all of them with the spellings in [{DATA}]({DATA}), empty where a call ends with an error."
    )
    columns = [
        Column("module", "model"),
        Column("exact", "exact", kind="int"),
        *(Column(one["version"], f"ptflops {one['version']}", kind="int") for one in readings),
    ]
    return f"{about}\n\n{markdown.table(columns, [row for row in _rows(found) if row['module'] in found['models']])}"


def data(facts: Facts) -> str:
    """Every reading of every version, as CSV."""
    found = facts.stored_json(RECORD) or {"exact": {}, "readings": []}
    return table_as_csv(["module", "exact", *(one["version"] for one in found["readings"])], _rows(found))


def _rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"module": name, "exact": exact, **{one["version"]: one["macs"][name] for one in found["readings"]}}
        for name, exact in found["exact"].items()
    ]


def _exactly(reading: Mapping[str, Any], exact: Mapping[str, int]) -> str:
    return f"{reading['version']} reads {_same(reading['macs'], exact)} exactly"


def _same(macs: Mapping[str, int | None], exact: Mapping[str, int]) -> int:
    return sum(macs[name] == size for name, size in exact.items())
