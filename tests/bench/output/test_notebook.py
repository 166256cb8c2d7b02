"""A count in a notebook: a page whose modules fold, with every number of the printed tree."""

import re
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import headcount as hc


class Reader(HTMLParser):
    """Reads the first cells with the number of elements that fold them, and requires that elements are closed."""

    def __init__(self):
        super().__init__()
        self.around, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.around.append(tag)

    def handle_endtag(self, tag):
        assert self.around.pop() == tag

    def handle_data(self, data):
        if self.around and self.around[-1] == "span":
            self.cells.append((self.around.count("details"), data))


def test_modules_fold_with_their_numbers():
    count = hc.count(nn.Sequential(nn.Linear(3, 7), nn.Sequential(nn.ReLU(), nn.Linear(7, 11))), torch.ones(5, 3))
    reader = Reader()
    reader.feed(count._repr_html_())
    assert not reader.around
    cells = [(depth, text) for depth, text in reader.cells if not text.isspace()]
    assert cells[:6] == [(0, head) for head in ("module", "class", "output", "params", "MACs", "share")]
    # 5 x (3 x 7 + 7 x 11), 3 x 7 + 7 + 7 x 11 + 11
    assert cells[6:12] == [(1, text) for text in ("(model)", "Sequential", "5x11", "116", "490", "100.00 %")]
    assert cells[12:18] == [(1, text) for text in ("0", "Linear", "5x7", "28", "105", "21.43 %")]
    assert cells[18:24] == [(2, text) for text in ("1", "Sequential", "5x11", "88", "385", "78.57 %")]
    assert cells[-6:] == [(2, text) for text in ("1", "Linear", "5x11", "88", "385", "78.57 %")]


def deep(levels, width):
    return nn.Sequential(nn.Linear(width, width), deep(levels - 1, width) if levels else nn.ReLU())


@pytest.mark.parametrize("width", [3, 30_000])
@pytest.mark.parametrize("levels", [0, 6])
def test_columns_are_as_wide_as_their_texts(levels, width):
    with torch.device("meta"):
        count = hc.count(deep(levels, width), torch.ones(4096, width))
    html = count._repr_html_()
    columns = [int(one) for one in re.findall(r"(\d+)ch", re.search(r"--columns:([^\"]*)", html)[1])]
    reader = Reader()
    reader.feed(html)
    texts = [text for _, text in reader.cells if not text.isspace()]
    assert len(columns) == 6 and len(texts) == 6 * (2 * levels + 4)
    assert f"{(levels + 1) * 4096 * width * width:,}" in texts
    for place, text in enumerate(texts):
        assert len(text) <= columns[place % 6], text
    # a module has its indent and the mark that folds it too
    assert columns[0] >= 2 * (levels + 1) + 2 + 1


@pytest.mark.parametrize("depth", [0, 1, 2, 4, 5, None])
def test_depth_is_what_is_unfolded(depth):
    model = deep(4, 3)
    for result in (hc.summary(model, torch.ones(2, 3), depth=depth), hc.summary(model, depth=depth)):
        # a sequence at each of the levels 0 to 4
        assert result._repr_html_().count("<details open>") == (5 if depth is None else depth)
