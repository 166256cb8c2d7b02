"""Plots: files are valid SVG, equal data gives equal bytes, and no text overlaps another or leaves the figure."""

import re
from itertools import combinations
from xml.dom import minidom

import pytest

from headcount.bench.output.figure import drawing
from headcount.reports.facts import Facts
from headcount.reports.plots import choose, figures, heat, moa, parallel, share, timing
from headcount.reports.plots.style import THEMES, remove_heading, settings

PLOTS = (
    heat.PLOT, moa.PRINTED, moa.BIG_MODELS, share.PLOT, choose.OVER_MHA, choose.FRONT, choose.ROOFLINE, timing.OVERHEAD,
    timing.BREAK_EVEN, moa.QUALITY, figures.PLOT, parallel.PLOT,
)  # fmt: skip
FACTS = Facts()


@pytest.mark.parametrize("theme", THEMES)
def test_rendered_file_is_valid(theme):
    """The file has a description, loads nothing, and is the same every time."""
    plot, text = moa.BIG_MODELS, moa.BIG_MODELS.render(FACTS, theme)
    document = minidom.parseString(text)
    (description,) = document.getElementsByTagName("dc:description")
    assert description.firstChild.data == plot.alternative and len(document.getElementsByTagName("text")) > 5
    assert not document.getElementsByTagName("dc:date") and not document.getElementsByTagName("image")
    assert not re.search(r'href="(?!#)', text) and text.index(THEMES[theme][0]) < text.index("<text")
    assert text == plot.render(FACTS, theme)


def test_pdf_is_the_same_every_time_and_has_no_title():
    plot = moa.BIG_MODELS
    found = plot.render_pdf(FACTS)
    assert found.startswith(b"%PDF") and found == plot.render_pdf(FACTS)
    assert plot.digest(plot.data(FACTS)).encode() in found and b"CreationDate" not in found
    with drawing().style.context(["default", settings("")]):
        figure = plot.draw(plot.data(FACTS))
        height = figure.get_figheight()
        remove_heading(figure)
        assert not figure.texts and 0.6 < height - figure.get_figheight() < 0.8
    drawing().close(figure)


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_no_text_overlaps_or_leaves_the_figure(plot, monkeypatch):
    pyplot = drawing()
    draw, texts = pyplot.Text.draw, {}
    with pyplot.style.context(["default", settings("")]):
        figure = plot.draw(plot.data(FACTS))
        monkeypatch.setattr(pyplot.Text, "draw", lambda text, renderer: [texts.update({text: 1}), draw(text, renderer)])
        figure.canvas.draw()
        texts = [text for text in texts if text.get_visible() and text.get_text()]
        # the text of an annotation, without its arrow
        boxes = [(text.get_text(), pyplot.Text.get_window_extent(text)) for text in texts]
        whole = figure.bbox
    pyplot.close(figure)
    assert len(boxes) > 10
    for (text, one), (other, two) in combinations(boxes, 2):
        wide, high = min(one.x1, two.x1) - max(one.x0, two.x0), min(one.y1, two.y1) - max(one.y0, two.y0)
        assert min(wide, high) < 1, (text, other)
    for text, box in boxes:
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1, text


def test_waterfall_parts_sum_to_the_difference(monkeypatch):
    assert len(moa.part_data(FACTS)["parts"]) == 6
    monkeypatch.setattr(type(FACTS.ledger("transformer-big")), "macs", property(lambda self: 7 + len(self)))
    with pytest.raises(ArithmeticError, match="^the parts do not add up"):
        moa.part_data(FACTS)


def test_ratio_to_mha_matches_its_closed_form():
    width, lengths = 512, choose.LENGTHS
    mha = [4 * T * width**2 + 2 * T**2 * width for T in lengths]
    mqa = [2 * T * width**2 + 2 * T * width * 64 + 2 * T**2 * width for T in lengths]
    assert choose.layer_macs("MHA 8 heads")[""] == mha
    found = choose.cost_data(FACTS)
    assert found["MQA 8 heads"] == [a / b for a, b in zip(mqa, mha, strict=True)]
    released, ideal = (found[f"MoH 75 %, {form}"] for form in ("as released", "ideal"))
    assert all(less < 1 < more for less, more in zip(ideal, released, strict=True))


def test_front_holds_the_matched_model():
    found = choose.front_data(FACTS)
    own = FACTS.ledger("transformer-big")
    # keys and values of 6 layers of self-attention and 6 of cross-attention, 2 bytes an element
    assert found["matched"] == ["Transformer big", 12 * 2 * 1024 * 2 * found["length"], own.params]
    assert found["macs"] == own.macs and 0 < len(found["found"]) <= 8
