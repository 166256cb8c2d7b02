"""What else the papers print about cost, held against the ledger: vocabularies, rows, unnamed models."""

from fractions import Fraction

from headcount.bench.table import Column
from headcount.formulas import conventions
from headcount.formulas.ledger import Ledger
from headcount.formulas.published import sentences
from headcount.formulas.published.claims import Rows
from headcount.formulas.published.expressions import relation
from headcount.reports import markdown
from headcount.reports.facts import COUNTED, Facts

BIG, TRANSFORMER_BIG = "moa-16K32E256D", "transformer-big"


def premises(facts: Facts) -> str:
    """K D over d_m in each MoA row of Table 3: which of the paper's own models meet its premise."""
    rows = facts.tables["moa-table3"].rows
    widths = {}
    for row in rows:
        dims = next(e.dims for e in facts.ledger(row.preset) if e.path.endswith("self_attn.q_proj"))
        widths[row.name] = Fraction(dims["K"] * dims["D"], dims["d_m"])
    meet = [name for name, width in widths.items() if width == 1]
    table = markdown.table(
        [Column("row", "row"), Column("width", "K D / d_m", align="right")],
        [{"row": name, "width": str(width)} for name, width in widths.items()],
    )
    return f"k d_h equals d_m in {len(meet)} of the {len(rows)} rows of Table 3 ({', '.join(meet)}).\n\n{table}"


def unlisted(facts: Facts) -> str:
    """Models that the paper names and no table holds."""
    parts = []
    presets = {row.preset for name in facts.of_paper(COUNTED) for row in facts.tables[name].rows}
    table3 = facts.tables["moa-table3"]
    macs, params = table3.column("macs"), table3.column("params")
    for model in facts.claims.named_models:
        holding = "a table holds it" if model.preset in presets else "no table of the paper holds it"
        own, near = (facts.ledger(name) for name in (model.preset, model.nearest))
        parts.append(
            f"`{model.name}` is named in {model.place}, and {holding}. Under Table 3's rule it would print "
            f"{macs.printing.text(own.billed(macs.bills))} and {params.printing.text(own.params)} parameters; "
            f"`{model.nearest}`, the nearest of the tables, {macs.printing.text(near.billed(macs.bills))} and "
            f"{params.printing.text(near.params)}."
        )
    return "\n\n".join(parts)


def convolutions(facts: Facts) -> str:
    """The footnote that blames uncounted convolutions, against what the convolutions cost."""
    table = facts.tables["moa-table1"]
    macs, lines = table.column("macs"), []
    for row in (row for row in table.rows if row.preset in ("lightconv", "dynamicconv")):
        form = facts.ledger(row.preset)
        billed = form.billed(macs.bills)
        convolved = sum(entry.macs for entry in form if entry.kind == "conv")
        banded = convolved - form.macs + facts.changed(row.preset, spelling="band").macs
        vocabulary = form.billed(conventions.vocabulary_projection)
        lines.append(
            f"- {row.name} prints {macs.printed(row)}. All its linear layers are {billed:,}; the convolutions, which "
            f"the footnote says are missing, are {convolved:,}, or {banded:,} where they are written as products of "
            f"band matrices (spelling=band); the vocabulary projection is {vocabulary:,}, and without it the row "
            f"prints {macs.printing.text(billed - vocabulary)}."
        )
    return "\n".join(lines)


def savings(facts: Facts) -> str:
    """Why MoA Big's figure is smaller, and the length at which it stops saving."""
    forms = {name: facts.ledger(name) for name in (BIG, TRANSFORMER_BIG)}
    rule = facts.tables["moa-table1"].column("macs").bills
    attention = {name: form.select(conventions.attention).billed(rule) for name, form in forms.items()}
    dearer = "dearer" if attention[BIG] > attention[TRANSFORMER_BIG] else "cheaper"
    length = dearer_from(facts, BIG, TRANSFORMER_BIG)
    return (
        f"MoA's attention is {dearer} than the Transformer's; the rest is a narrower model: d_m "
        f"{_size(forms[BIG], 'd_m')} and feed-forward {_size(forms[BIG], 'F')} against "
        f"{_size(forms[TRANSFORMER_BIG], 'd_m')} and {_size(forms[TRANSFORMER_BIG], 'F')}. Executed, with S = T, MoA "
        f"Big costs more than Transformer big from T = {length:,} on."
    )


def _size(form: Ledger, letter: str) -> int:
    return next(entry.dims[letter] for entry in form if letter in entry.dims)


def dearer_from(facts: Facts, one: str, other: str) -> int:
    """The least length S = T at which preset ``one`` executes more than ``other``: its last turn. ValueError where
    there is none."""
    forms = {"one": facts.ledger(one), "other": facts.ledger(other)}
    check = Rows(f"{one} against {other}", relation("one <= other"), {})
    found = sentences.turns(check, forms)
    if not found or sentences.holds_at(check, forms, found[-1]):
        raise ValueError(f"no length makes {one} dearer than {other}")
    return found[-1]
