"""Pages as HTML: nothing from elsewhere, links that stay inside, formulas as MathML."""

import re
from pathlib import Path

import pytest

from headcount.reports import html
from headcount.reports.mathml import mathml

GENERATED = Path(__file__).parents[2] / "reports" / "generated"
PAGES = sorted(path.stem for path in GENERATED.glob("*.md"))


@pytest.fixture(scope="module", params=PAGES)
def page(request):
    return html.page((GENERATED / f"{request.param}.md").read_text("utf-8"), PAGES)


def test_a_page_loads_nothing_from_elsewhere(page):
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(https?:)?//', page) and "<script" not in page


def test_links_lead_to_pages_of_html_and_to_headings_that_are_there(page):
    assert not re.search(r'href="[\w-]+\.md', page)
    ids = set(re.findall(r'id="([^"]*)"', page))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= ids


def test_formulas_are_marked_up_and_no_dollar_is_left(page):
    outside = re.sub(r"<(pre|code)[ >].*?</\1>", "", page, flags=re.DOTALL)
    assert "$" not in outside and "\x02" not in page
    assert page.count("<math>") == page.count("</math>")


@pytest.mark.parametrize(
    "tex, expected",
    [
        ("2 T^{2}", "<mn>2</mn><msup><mi>T</mi><mrow><mn>2</mn></mrow></msup>"),
        ("d_{ff}", "<msub><mi>d</mi><mrow><mi>f</mi><mi>f</mi></mrow></msub>"),
        ("d_m^2", "<msubsup><mi>d</mi><mi>m</mi><mn>2</mn></msubsup>"),
        (r"\frac{q}{2 E}", "<mfrac><mrow><mi>q</mi></mrow><mrow><mn>2</mn><mi>E</mi></mrow></mfrac>"),
        (r"\left(k - 1\right) \ge 0", "<mo>(</mo><mi>k</mi><mo>−</mo><mn>1</mn><mo>)</mo><mo>≥</mo><mn>0</mn>"),
        ("d_c'", "<msub><mi>d</mi><mi>c</mi></msub><mo>′</mo>"),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
    ],
)  # fmt: skip
def test_a_formula_as_mathml(tex, expected):
    assert mathml(tex) == f"<math>{expected}</math>"


@pytest.mark.parametrize("tex, message", [(r"\sum x", r"no sign for \\sum"), ("a}", "closes more than it opens")])
def test_what_is_none_of_these_is_refused(tex, message):
    with pytest.raises(ValueError, match=message):
        mathml(tex)
