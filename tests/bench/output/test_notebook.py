"""A count in a notebook: a page whose modules fold, with every number of the printed tree."""

from html.parser import HTMLParser

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
