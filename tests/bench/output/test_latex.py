"""LaTeX, line by line: a table of a few rows, one that may break across pages, and texts that are broken."""

import io

import pytest

from headcount.bench.output.base import Style
from headcount.bench.output.latex import TEXT_WIDTH, Latex, points
from headcount.bench.table import Column, Row, Section, Table

COLUMNS = [
    Column("row", "row"),
    Column("macs", "MACs\nof a_layer", kind="int", of="MACs"),
    Column("form", "form", formula=True),
]
ROWS = [
    Row({"row": "50% of d_m", "macs": 1234, "form": "$d_{m}$"}),
    Row({"row": "the $ rest", "macs": 7, "form": None}, notes=["a & b"]),
    Row({"row": "all", "macs": 1241, "form": "50% more"}, total=True),
]
HEAD = [r" & MACs &  \\", r"row & of a\_layer & form \\"]
BODY = [r"50\% of d\_m & 1,234 & $d_{m}$ \\", r"the \$ rest [1] & 7 & -- \\", r"\midrule all & 1,241 & 50\% more \\"]
SMALL = r"\small\setlength{\tabcolsep}{3pt}"
ABOUT = r"\caption{M \& E}\label{tab:t}"
NOTES = [r"\footnotesize\raggedright", r"[1] a \& b\par"]
WORDS = " ".join(["1000"] * 48)
"""A little more than three lines of the page: digits are 500 thousandths wide, a blank 333."""


def printed(columns, rows, wide=False):
    stream = io.StringIO()
    Latex(stream, Style(wide=wide)).print(Section(Table("t", "M & E", columns, note_column="row"), rows), rows)
    return stream.getvalue().splitlines()


def is_long(rows, columns=None):
    return r"\begin{longtable}{@{}l@{}}" in printed(columns or COLUMNS[:1], [Row({"row": row}) for row in rows])


def test_a_table_is_these_lines():
    assert printed(COLUMNS, ROWS) == [
        r"% \usepackage{booktabs,array,longtable}",
        r"\begin{table}", ABOUT, r"\centering", SMALL, r"\begin{tabular}{@{}lrl@{}}", r"\toprule",
        *HEAD, r"\midrule", *BODY, r"\bottomrule", r"\end{tabular}",
        "", r"\medskip", r"\begin{minipage}{\linewidth}", *NOTES, r"\end{minipage}", r"\end{table}",
    ]  # fmt: skip


def test_a_table_of_many_rows_breaks_across_pages_and_repeats_its_head():
    assert printed(COLUMNS, [ROWS[0]] * 38 + ROWS) == [
        r"% \usepackage{booktabs,array,longtable}",
        r"\begingroup", SMALL, r"\begin{longtable}{@{}lrl@{}}", rf"{ABOUT}\\",
        r"\toprule", *HEAD, r"\midrule\endhead", r"\bottomrule\endfoot",
        *[BODY[0]] * 38, *BODY, r"\end{longtable}", *NOTES, r"\par\endgroup",
    ]  # fmt: skip


def test_the_first_row_has_no_second_rule_above_it():
    assert r"all \\" in printed(COLUMNS[:1], [Row({"row": "all"}, total=True)])


def test_a_page_has_forty_lines():
    assert not is_long(["a"] * 40) and is_long(["a"] * 41)


def test_a_text_that_fits_is_one_line():
    assert points("0" * 10) == pytest.approx(5 * 9.3, rel=1e-12)
    fits = "0" * 73
    assert 0.95 * TEXT_WIDTH < points(fits) < TEXT_WIDTH
    column = [Column("row", "row", wraps=20)]
    for long, rows in ((False, [fits] * 40), (True, [fits] * 41)):
        assert (r"\begingroup" in printed(column, [Row({"row": row}) for row in rows])) is long


def test_a_broken_text_takes_its_lines_and_a_third_of_them_more():
    assert 3 < points(WORDS) / TEXT_WIDTH < 40 / 1.3 / 10
    column = [Column("row", "row", wraps=20)]
    for long, rows in ((False, [WORDS] * 10), (True, [WORDS] * 10 + ["a"])):
        text = printed(column, [Row({"row": row}) for row in rows])
        assert (r"\begingroup" in text) is long
        assert any(r"{@{}>{\raggedright\arraybackslash}p{345.0pt}@{}}" in line for line in text)


@pytest.mark.parametrize(("wide", "shown"), [(False, r"1000 \allowbreak{}1000"), (True, "1000 1000")])
def test_a_text_may_break_where_its_column_is_narrower(wide, shown):
    text = "\n".join(printed([Column("row", "row", wraps=20)], [Row({"row": WORDS})], wide))
    assert shown in text and (r"\begin{tabular}{@{}l@{}}" in text) is wide


def test_the_tallest_cell_is_how_tall_a_row_is():
    """Beside a broken text another one of a single line."""
    columns = [Column("row", "row", wraps=20), Column("n", "n", kind="int")]
    for number, long in ((9, False), (10, True)):
        assert (r"\begingroup" in printed(columns, [Row({"row": WORDS, "n": 7})] * number)) is long
