"""The page on torchvision's own counts: totals of the stored rows, none left out, and a word where there are none."""

import json

from headcount.bench.macs.torchvision_ops import published
from headcount.reports import torchvision
from headcount.reports.facts import Facts


def rows_of(text):
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [line for line in lines if not line[0].startswith(":")]


def stored(folder, rows):
    table = {"name": "torchvision", "source": "somewhere", "torchvision": "1", "torch": "2", "rows": rows}
    (folder / torchvision.RECORD).write_text(json.dumps({"tables": [table]}))
    return Facts(stored=folder)


def row(kind, verdict, because=""):
    return {"weights": f"{kind}_{verdict}", "kind": kind, "verdict": verdict, "because": because, "ops_printed": "1.5"}


def test_totals_are_sums_of_the_rows_by_kind(tmp_path):
    found = [row("video", "agrees")] * 3 + [row("video", "differs"), row("detection", "agrees", "7 + 2 boxes x 5")]
    page = torchvision.page(stored(tmp_path, [*found, {"tally": {"agrees": 4}}]))
    assert rows_of(page)[:4] == [
        ["kind of model", "agrees", "differs"],
        ["video", "3", "1"],
        ["detection", "1", "0"],
        ["all", "4", "1"],
    ]
    assert rows_of(page)[-1] == ["detection_agrees", "1.5", "7 + 2 boxes x 5"]


def test_the_stored_run_has_every_row_of_the_table():
    found = Facts().stored_json(torchvision.RECORD)
    names = [one["weights"] for one in found["tables"][0]["rows"] if "tally" not in one]
    assert names == [one["weights"] for one in published()]
    (totals,) = [line[1:] for line in rows_of(torchvision.page(Facts())) if line[0] == "all"]
    assert sum(map(int, totals)) == len(names)


def test_without_a_run_the_page_says_how_to_make_one(tmp_path):
    assert torchvision.page(Facts(stored=tmp_path)) == torchvision.NOT_RUN
