"""The method page's table of elementwise products: each program is counted as its row states."""

import pytest
import torch

from headcount.bench.api.count import count_macs
from headcount.bench.contractions.elementwise import CONTRACTION, SCALED, SQUARE
from headcount.reports import template
from tests.bench.contractions.function_modules import module

KINDS = {"contraction": CONTRACTION, "added product": SCALED, "square": SQUARE}
ELEMENTWISE = template.sources()["method"].read_text("utf-8").partition("| program |")[2].partition("\n\n")[0]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
    for line in ELEMENTWISE.splitlines()
    if line.startswith("| `")
]


def put(x, i):
    return torch.empty_like(x).index_put((i,), x)


def cos(rows, width):
    return torch.linspace(0, 1, rows * width).view(rows, width).cos()


@pytest.mark.parametrize("letters", [{"N": 7, "K": 3, "d": 5}, {"N": 1, "K": 3, "d": 5}], ids=["T7", "T1"])
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_listed_products_of_program(row, letters):
    program, shapes, listed, expected = row

    def size(text):
        return eval(text.replace(" ", "*"), {}, letters)

    inputs = {}
    for part in shapes.split("), "):
        name, sizes = part.rstrip(")").split(" (")
        given = [size(one) for one in sizes.split(",")]
        inputs[name] = torch.randperm(*given) if name == "i" else torch.ones(given)
    scope = {"torch": torch, "put": put, "zeros": torch.zeros, "cos": cos, **letters}
    run = eval(f"lambda {', '.join(inputs)}: {program}", scope)
    found = {}
    for part in count_macs(module(run), *inputs.values()).elementwise:
        found[part.kind] = found.get(part.kind, 0) + part.size
    assert found == ({KINDS[listed]: size(expected)} if listed in KINDS else {})
