"""Counts of libraries' models: the terms of fvcore's rule by hand and by fvcore itself, and stored counts again."""

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import nn

import headcount as hc
from headcount.bench.errors import EnvironmentMissing
from headcount.formulas.published import library, tables
from tests.library_counts import count_line, import_timm, letters

TIMES = {"products": 1, "batch_norm": 2, "norm": 5, "pooling": 1}
"""What fvcore counts of each letter."""
SMALL = {
    "timm": ["test_vit 160", "test_byobnet 160", "repvgg_a0 224", "coat_tiny 224", "resnet18 224"],
    "torchvision": ["ResNet18_Weights.IMAGENET1K_V1 1x3x224x224", "Raft_Small_Weights.C_T_V1 1x3x512x512 1x3x512x512"],
}


class Tiny(nn.Module):
    """One of each call that fvcore counts, and calls that it leaves out."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.word = nn.Conv2d(4, 4, 3, padding="same")
        self.batch_norm, self.plain = nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)
        self.group_norm = nn.GroupNorm(2, 4)
        self.layer_norm, self.bare = nn.LayerNorm(4), nn.LayerNorm(4, elementwise_affine=False)
        self.pool, self.linear = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 5)

    def forward(self, x):
        x = self.group_norm(self.plain(self.batch_norm(self.word(self.conv(x)))))
        x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
        return self.linear(self.bare(self.layer_norm(self.pool(x).flatten(1))))


def test_letters_have_their_closed_form():
    model, x = Tiny().eval(), torch.zeros(1, 3, 6, 6)
    cells = letters(hc.count(model, x))
    others = library.terms(cells["others"])
    side, word = 36, 36 * 9 * 4 * 4
    assert cells["products"] == side * 9 * 3 * 4 + word + 4 * 5
    assert cells["batch_norm"] == side * 4
    # a group norm and a layer norm with a scale
    assert cells["norm"] == side * 4 + 4
    assert cells["pooling"] == 4 * side * 4
    assert cells["params"] == 9 * 3 * 4 + 9 * 4 * 4 + 4 + 8 + 8 + 8 + 4 * 5 + 5
    assert sorted(others.values()) == sorted([-word, side * 4, 4 * 4, 4 * 4 * side * 4])
    total = sum(times * cells[letter] for letter, times in TIMES.items()) + sum(others.values())
    assert total == FlopCountAnalysis(model, x).unsupported_ops_warnings(False).total()


@pytest.mark.parametrize("name, row", [(name, row) for name, rows in SMALL.items() for row in rows])
def test_stored_counts_are_counted_again(name, row):
    try:
        import_timm()
    except EnvironmentMissing as error:
        pytest.skip(str(error))
    table = tables.load(name)
    lines = library.read_printed(table.file, tables.FOLDER)
    keys = library.keys_of(lines, [one.name for one in table.columns])
    stored = [one for one in library.read_counts(name, tables.FOLDER)[1] if library.name_of(one, keys) == row]
    line = next(one for one in lines if library.name_of(one, keys) == row)
    assert [{key: str(cell) for key, cell in count_line(table, line).items()}] == stored


@pytest.mark.parametrize("name", ["test_vit", "test_byobnet", "test_convnext"])
def test_fvcore_counts_the_rule(name):
    try:
        timm = import_timm()
    except EnvironmentMissing as error:
        pytest.skip(str(error))
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    model, x = timm.create_model(name).eval(), torch.zeros(1, 3, 160, 160)
    cells = letters(hc.count(model, x))
    total = sum(times * cells[letter] for letter, times in TIMES.items()) + sum(library.terms(cells["others"]).values())
    assert total == FlopCountAnalysis(model, x).unsupported_ops_warnings(False).total()
