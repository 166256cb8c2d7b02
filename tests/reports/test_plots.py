"""Pictures: the same bytes every time, words beside marks, nothing over anything else or outside."""

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.dom import minidom

import pytest

from headcount.bench.table import Row
from headcount.reports import audit, heat_map, latency, svg
from headcount.reports.facts import Facts
from headcount.reports.plots import clock, cost, front, heat, quality, roofline, share, tables, waterfall
from headcount.reports.plots.axes import Axis, panel
from headcount.reports.svg import Picture, Scale, overlap

GENERATED = Path(__file__).parents[2] / "reports" / "generated"


class Audited(Facts):
    """Facts whose audit is made up: an exact reading, two that are off, one that is not there."""

    def audit(self):
        readings = {"right": 100, "ptflops-pytorch": 194, "fvcore": 45}
        records = [
            {"spelling": spelling, "device": device, "counter": counter, "exact": 100, "macs": macs}
            for spelling in ("mha-a", "moa-b")
            for device in ("cpu", "meta")
            for counter, macs in readings.items()
        ]
        records[-1] = {**records[-1], "macs": None, "failed": "it cannot"}
        rows = [Row({"written": "torch.a"}, records=records[i : i + 3]) for i in range(0, 12, 3)]
        return heat_map.cells(rows)


PLOTS = {plot.name: plot for plot in (
    heat.PLOT, tables.PLOT, waterfall.PLOT, share.PLOT, cost.OVER_MHA, cost.CACHE, front.PLOT, roofline.PLOT, clock.TAX,
    clock.SKIPPING, quality.PLOT,
)}  # fmt: skip
FACTS = Audited()
each_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)


@each_plot
def test_a_picture_has_the_same_bytes_every_time(plot):
    assert plot.text(FACTS) == plot.text(Audited())


@each_plot
def test_a_picture_is_a_document_with_a_title_and_a_description(plot):
    document = minidom.parseString(plot.text(FACTS))
    (root,) = document.getElementsByTagName("svg")
    named = {node.getAttribute("id"): node.firstChild.data for node in document.getElementsByTagName("title")}
    (description,) = document.getElementsByTagName("desc")
    assert root.getAttribute("aria-labelledby") == "title desc" and root.getAttribute("role") == "img"
    assert len(named["title"]) > 10 and plot.alternative in description.firstChild.data
    assert 640 <= int(root.getAttribute("width")) <= 800


@each_plot
def test_a_picture_has_a_background_of_its_own_and_loads_nothing(plot):
    text = plot.text(FACTS)
    assert text.index(f'fill="{svg.BACKGROUND}"') < text.index("<text")
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "<image" not in text


@each_plot
def test_no_text_lies_over_another_or_outside(plot):
    picture = plot.make(FACTS)
    for (one, said), (other, too) in combinations(picture.boxes, 2):
        assert overlap(one, other) < 1, (said, too)
    for (left, top, right, bottom), said in picture.boxes:
        assert 0 <= left and right <= picture.width and 0 <= top and bottom <= picture.height, said


@pytest.mark.parametrize("name", PLOTS)
def test_the_stored_pictures_keep_to_that_too(name):
    document = minidom.parseString((GENERATED / name).read_text("utf-8"))
    assert document.getElementsByTagName("desc") and len(document.getElementsByTagName("text")) > 5


def test_a_cell_of_the_heat_map_says_its_error_and_an_exact_one_is_empty():
    shown = [heat.error(cell) for cell in audit.found(FACTS) if cell.difference != 0]
    assert shown == 3 * ["+94", "\N{MINUS SIGN}55"] + ["+94", "x"]
    assert heat.heat(FACTS).marks and sum("<title>right of" in mark for mark in heat.heat(FACTS).marks) == 4


@pytest.mark.parametrize(
    "difference, said", [(1, "+0.001"), (-123, "\N{MINUS SIGN}0.1"), (9_940, "+9.9"), (-9_960, "\N{MINUS SIGN}10")]
)
def test_an_error_has_the_digits_that_fit(difference, said):
    cell = replace(audit.found(FACTS)[0], exact=100_000, difference=difference)
    assert heat.error(cell) == said


def test_the_parts_of_the_waterfall_are_the_whole_difference():
    shown = re.findall(r">([+\N{MINUS SIGN}][\d,.]+)</text>", waterfall.PLOT.text(FACTS))
    change = sum(float(one.replace("\N{MINUS SIGN}", "-").replace(",", "")) for one in shown)
    first, last = (FACTS.ledger(name).macs / 1e6 for name in (waterfall.TRANSFORMER_BIG, waterfall.BIG))
    assert abs(change - (last - first)) < 0.05 * len(shown) and len(shown) == 6


def test_a_waterfall_whose_parts_do_not_add_up_is_refused(monkeypatch):
    class Lost(Facts):
        def ledger(self, preset):
            form = super().ledger(preset)
            if preset == waterfall.BIG:
                monkeypatch.setattr(type(form), "macs", property(lambda self: 7))
            return form

    with pytest.raises(ArithmeticError, match="^the parts do not add up"):
        waterfall.big_models(Lost())


def test_the_matched_model_stands_on_the_front_in_a_colour_of_its_own():
    text = front.PLOT.text(FACTS)
    assert text.count(f'fill="{svg.VERMILLION}"') == 1 and "Transformer big" in text


def test_mha_is_the_line_at_1_and_released_moh_lies_above_it():
    lines = {name: cost._macs(name) for name in ("MHA 8 heads", "MoH 75 %")}
    dense = lines["MHA 8 heads"][""]
    released, ideal = lines["MoH 75 %"][", as released"], lines["MoH 75 %"][", ideal"]
    assert all(less < all_ < more for less, all_, more in zip(ideal, dense, released, strict=True))


def test_what_was_not_measured_says_so_in_the_picture(tmp_path):
    facts = Facts(stored=tmp_path)
    for plot in (clock.TAX, clock.SKIPPING):
        text = plot.text(facts)
        assert "CUDA: not measured" in text and "CPU: not measured" in text and "<circle" not in text
    assert "CUDA: not measured" in clock.TAX.text(FACTS) and "CPU: not measured" not in clock.TAX.text(FACTS)


def test_the_roofline_says_that_it_is_an_estimate():
    assert "an estimate from data sheets, nothing measured" in roofline.PLOT.text(FACTS)


def test_labels_are_spread_in_their_order():
    assert svg.spread([10, 11, 40], 14) == [3.5, 17.5, 40]
    assert svg.spread([5, 4, 6], 2) == [5, 3, 7]


def test_a_scale_keeps_order_and_ends():
    for scale in (Scale(1, 100, 0, 10), Scale(1, 100, 0, 10, log=True)):
        assert (scale(1), scale(100)) == (0, 10) and 0 < scale(10) < 10
    assert Scale(1, 100, 0, 10, log=True)(10) == 5


@pytest.mark.parametrize(
    "values, expected",
    [
        ([27.3, 30.1], [27.0, 27.5, 28.0, 28.5, 29.0, 29.5, 30.0, 30.5]),
        ([0, 900], [0, 200, 400, 600, 800, 1000]),
        ([7, 7], [6, 8]),
    ],
)
def test_ticks_are_round_and_around_the_values(values, expected):
    assert svg.ticks(values) == expected


def test_labels_beside_points_meet_no_other():
    picture = Picture("title of it", "what", 200, 300)
    x, y = Scale(0, 1, 40, 280), Scale(0, 1, 160, 40)
    inside = panel(picture, Axis(x, [(0, "0")], "x"), Axis(y, [(0, "0")], "y"))
    before = len(picture.boxes)
    svg.beside(picture, [(100, 100, f"label {i}", svg.BLUE) for i in range(4)], inside)
    assert all(overlap(a, b) == 0 for (a, _), (b, _) in combinations(picture.boxes[before:], 2))


def test_text_and_titles_are_escaped():
    picture = Picture("a < b", "c & d", 100)
    picture.text(1, 20, "e < f", title="g & h")
    assert minidom.parseString(str(picture)).getElementsByTagName("text")[0].lastChild.data == "e < f"


def test_break_even_ratios_are_by_share():
    records = [record for rows in latency.of_type(FACTS, "cpu").values() for record in rows]
    assert all(set(own) <= {100, 90, 75, 50} for own in latency.ratios(records).values())
