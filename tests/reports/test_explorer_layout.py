"""The explorer's layout in headless Chromium: on a phone, on a tablet and on a desk nothing overlaps or runs over."""

import pytest

from tests.reports import chromium
from tests.reports import explorer_facts as made

pytestmark = chromium.needed
WIDTHS = (400, 800, 1240)
ALL = "width,mha,moa,mqa,moh,moh-ideal,mla,mla-ideal,switchhead"
HASHES = {
    "as it begins": "",
    "as printed": "printed=1&K=12&E=32&D=64",
    "every layer": f"account=moved&form=mla&show={ALL}&K=12&E=32&D=64&h=8&g=2",
    "large and impossible": f"show={ALL}&T=999999999&d_m=999999999&K=999999999&D=999999999&s=7&unit=raw&printed=1",
    "a row": "tab=judge",
    "a row that no rule prints": "tab=judge&table=moa-table2&row=1&bill=none",
    "the heat map": "tab=heat&cell=moa-spelling-9.cpu.right",
}
MEASURE = """
const clipped = (node, box) => {
  let { left, right, top, bottom } = box;
  const { max, min } = Math;
  for (let one = node.parentElement; one; one = one.parentElement) {
    if (getComputedStyle(one).overflow === "visible") continue;
    const at = one.getBoundingClientRect();
    [left, right] = [max(left, at.left), min(right, at.right)];
    [top, bottom] = [max(top, at.top), min(bottom, at.bottom)];
  }
  return { left, right, top, bottom };
};
const found = [];
const add = (node, box, text) => {
  const seen = clipped(node, box);
  if (seen.right - seen.left > 0.5 && seen.bottom - seen.top > 0.5) found.push({ node, text, ...seen });
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  if (!node.data.trim() || node.parentElement.closest("script, option, .unseen, textarea")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) add(node, box, node.data.trim());
}
for (const node of document.querySelectorAll("input, select, .badge, .bar"))
  add(node, node.getBoundingClientRect(), node.id || node.className.baseVal || "bar");
const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
const down = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
const over = (a, b) => across(a, b) > 1 && down(a, b) > 2.5;
const overlaps = [];
found.forEach((a, i) => found.slice(0, i).forEach((b) => {
  // the number in a badge stands there on purpose
  const inBadge = [a, b].some((one) => one.text === "badge") && [a, b].some((one) => /^\\d+$/.test(one.text));
  if (a.node !== b.node && over(a, b) && !inBadge) overlaps.push([a.text, b.text]);
}));
const outside = found.filter((one) => {
  const card = one.node.parentElement.closest(".card, aside, header, main, footer").getBoundingClientRect();
  return one.left < card.left - 0.5 || one.right > card.right + 0.5;
}).map((one) => one.text);
const { scrollWidth, clientWidth } = document.documentElement;
answer({ overlaps, outside, wide: scrollWidth - clientWidth, things: found.length });
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What was measured, by width and address."""
    return chromium.ask_framed(tmp_path_factory.mktemp("frames"), made.text(), MEASURE, WIDTHS, list(HASHES.values()))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("what", HASHES)
def test_nothing_overlaps_or_runs_over(measured, what, width):
    said = measured[width, HASHES[what]]
    assert said["things"] > 60
    assert (said["overlaps"], said["outside"], said["wide"]) == ([], [], 0)


SEEN = "answer([...document.body.children].filter((one) => one.getClientRects().length).map((one) => one.id));"


def test_without_a_program_the_table_of_the_first_sizes_is_what_is_seen(tmp_path):
    off = made.text().replace('<script>\n"use strict";', '<script type="off">\n"use strict";')
    assert off != made.text()
    assert chromium.ask(tmp_path, off, SEEN) == ["", "static", ""]
    assert chromium.ask(tmp_path, made.text(), SEEN) == ["", "compare", ""]
