"""Read the pipe tables of the report."""

from headcount.reports.document import FIGURE_SPACE, WORD_JOINER


def rows_of(text, head=""):
    """Return the rows, by heading, of the first table with a heading that holds ``head``."""
    text = text.replace("<br>", " ").replace(FIGURE_SPACE, " ").replace(WORD_JOINER, "")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    heads, _, *rows = next(lines for lines in tables if head in lines[0])
    names, *cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in (heads, *rows))
    return [dict(zip(names, row, strict=True)) for row in cells]
