"""LaTeX, line by line: a table of a few rows, one that may break across pages, and texts that are broken."""

import io

import pytest

from headcount.bench.output.base import Style
from headcount.bench.output.latex import MOST_LINES, WIDTH, Latex
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
ABOUT = r"\caption{M \& E}\label{tab:t}"
NOTES = [r"\footnotesize\raggedright", r"[1] a \& b\par"]
WORDS = " ".join(["10.0"] * 50)
"""Three lines of 20, 20 and 10 words."""


def printed(columns, rows, wide=False):
    stream = io.StringIO()
    Latex(stream, Style(wide=wide)).print(Section(Table("t", "M & E", columns, note_column=columns[0].key), rows), rows)
    return stream.getvalue().splitlines()


def is_long(rows, columns=COLUMNS[:1]):
    return any(r"\begin{longtable}" in line for line in printed(columns, [Row(row) for row in rows]))


def test_table_lines():
    assert printed(COLUMNS, ROWS) == [
        r"% \usepackage{array,booktabs,graphicx,longtable}",
        r"\begin{table}", ABOUT, r"\centering", r"\small\setlength{\tabcolsep}{3pt}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{@{}lrl@{}}", r"\toprule",
        *HEAD, r"\midrule", *BODY, r"\bottomrule", r"\end{tabular}}",
        "", r"\medskip", r"\begin{minipage}{\linewidth}", *NOTES, r"\end{minipage}", r"\end{table}",
    ]  # fmt: skip


def test_many_rows_are_a_longtable():
    assert printed(COLUMNS, [ROWS[0]] * 38 + ROWS) == [
        r"% \usepackage{array,booktabs,graphicx,longtable}",
        r"\begingroup", r"\scriptsize\setlength{\tabcolsep}{2pt}",
        r"\setlength{\LTleft}{0pt plus 1fill minus 1fill}\setlength{\LTright}{\LTleft}",
        r"\begin{longtable}{@{}lrl@{}}", rf"{ABOUT}\\",
        r"\toprule", *HEAD, r"\midrule\endhead", r"\bottomrule\endfoot",
        *[BODY[0]] * 38, *BODY, r"\end{longtable}", *NOTES, r"\par\endgroup",
    ]  # fmt: skip


def test_first_row_has_no_second_rule():
    assert r"all \\" in printed(COLUMNS[:1], [Row({"row": "all"}, total=True)])


def test_longtable_begins_after_most_lines():
    assert not is_long([{"row": "a"}] * MOST_LINES) and is_long([{"row": "a"}] * (MOST_LINES + 1))


def test_broken_texts_count_their_lines():
    columns = [Column("row", "row", wraps=20), Column("n", "n", kind="int", width=3)]
    assert not is_long([{"row": WORDS, "n": 7}] * 13, columns) and is_long([{"row": WORDS, "n": 7}] * 14, columns)


@pytest.mark.parametrize(
    ("wide", "kind"), [(False, rf">{{\raggedright\arraybackslash}}p{{{WIDTH / 2}em}}"), (True, "l")]
)
def test_long_text_breaks_unless_wide(wide, kind):
    text = "\n".join(printed([Column("row", "row", wraps=20)], [Row({"row": WORDS})], wide))
    assert rf"\begin{{tabular}}{{@{{}}{kind}@{{}}}}" in text and (r"10.\allowbreak{}0 10" in text) is not wide


def test_columns_are_those_of_a_text_of_100_characters():
    columns = [Column("a", "a"), Column("b", "b"), Column("c", "c")]
    fitting = Row({"a": "a" * 30, "b": "b" * 30, "c": "c" * 36})
    assert "Hidden" not in "\n".join(printed(columns, [fitting]))
    assert "wide): c." in "\n".join(printed(columns, [Row({**fitting.values, "c": "c" * 37})]))
