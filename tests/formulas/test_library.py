"""Tables that libraries print of their models: each figure has a count, and counts have their closed form."""

import pytest

from headcount.bench.macs.published import figures_table
from headcount.formulas.published import library, tables

NAMES = tables.library_names()


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_counted_once(name):
    table = tables.load(name)
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert [row.name for row in table.rows if not row.given] == []


@pytest.mark.parametrize("name", NAMES)
def test_explained_figures_state_their_terms(name):
    for cell in figures_table(name).rows:
        assert cell.because or cell.verdict == "reproduced"


def test_vision_transformer_has_its_closed_form():
    T, d, patches, classes, layers = 14 * 14 + 1, 768, 14 * 14, 1000, 12
    given = tables.load("timm").row("vit_base_patch16_224 224").given
    block = 4 * T * d * d + 2 * T * T * d + 2 * T * d * 4 * d
    assert given["products"] == patches * 3 * 16 * 16 * d + layers * block + d * classes
    assert given["norm"] == (2 * layers + 1) * T * d
    assert (given["batch_norm"], given["pooling"], given["others"]) == (0, 0, 0)


def test_vgg_has_its_closed_form():
    sizes = {224: [(3, 64)], 112: [(64, 128)], 56: [(128, 256), (256, 256)], 28: [(256, 512), (512, 512)]}
    sizes[14] = [(512, 512), (512, 512)]
    convolutions = sum(side**2 * 9 * a * b for side, layers in sizes.items() for a, b in layers)
    # timm writes the first linear layers as convolutions
    linear = 512 * 7 * 7 * 4096 + 4096 * 4096 + 4096 * 1000
    assert tables.load("timm").row("vgg11 224").given["products"] == convolutions + linear


def test_terms_of_others():
    assert library.terms("interpolation by aten::upsample_bilinear2d: 8; aten::conv2d: a word: -3") == {
        "interpolation by aten::upsample_bilinear2d": 8,
        "aten::conv2d: a word": -3,
    }


@pytest.mark.parametrize("text, padded", [("10.3", "10.30"), ("0.05", "0.05"), ("61100840", "61100840"), ("", "")])
def test_last_zeros_are_digits(text, padded):
    assert library.padded(text, 2) == padded
