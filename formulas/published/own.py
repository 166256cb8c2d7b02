"""Tables of any paper, in the file of a user: TOML as the tables of this folder, or CSV or markdown.

These have the columns of HEADER or WIDE.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import PurePath
from typing import Any

from headcount.formulas.conventions import TRAINING
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import EMPTY, LETTERS, QUANTITIES, Row
from headcount.formulas.published.rounding import MEASURED, UNITS
from headcount.formulas.published.tables import (
    PublishedTable,
    check,
    is_amount,
    parse,
    read_each,
    split_target,
)
from headcount.formulas.published.typed import choices, parse_toml
from headcount.formulas.symbols import NAMES

HEADER = ("target", "quantity", "printed")
"""Columns of a CSV file with a row for each number."""
WIDE = ("model", "params", "macs")
"""Columns of one with a row for each model, whose quantities are any."""
WORDS = {
    **dict.fromkeys(("param", "parameter", "parameters"), "params"),
    **dict.fromkeys(("mac", "madd", "madds"), "macs"),
    "flop": "flops",
}
"""Words of papers' heads, as of "#param." and "Active parameters", by those of quantities."""
PHRASES = {
    r"(total_|num_|(number_|no_)?of_|total_number_of_)(?=(active_|activated_)?params$)": "",
    r"activated_(?=params$)": "active_",
    r"(forward|fwd)_(pass_)?(?=macs|flops)": "",
    r"mult(i|iply)?_(add|adds|accumulate|accumulates)\b": "macs",
    r"(kv|key_value)_?cache(_size|_memory|_footprint)?(?=_|$)": "kv",
    r"kv(?=(_per_token)?$)": "kv_bytes",
    r"kv_(bytes|elements)_per_token$|^kv_per_token_(bytes|elements)$": r"kv_token_\1\2",
}
"""What stands at the beginning of heads, as regular expressions, by that of quantities: words that change none."""
SIDES = ("image_size", "img_size", "input_size", "resolution", "input_resolution")
"""Columns of the side of images, which may be the input of a model."""
LENGTHS = (
    "t", "tokens", "t_tokens", "seq_len", "seq_length", "sequence_length", "context", "context_length", "context_size",
)  # fmt: skip
"""Columns of the sequence length of a row, where all of their numbers are integers up to LONGEST."""
LONGEST = 2**24
"""The longest sequence: more tokens are those of a training run."""
_NUMBER = r"(\d[\d,]*) ?(ki?)?"
_NAMED = r"T ?=|seq[a-z.]*[ _-]?len(?:gth)?|context(?: length)?"
_JOINED = r"(?<!per)(?<!per )(?<!/)\s*(?:[@,;]|\b(?:at|for)\b)?\s*"
_LENGTH = re.compile(
    rf"{_JOINED}\b(?:(?:{_NAMED})[ =:]*{_NUMBER}|{_NUMBER}[ -]?(?:tokens?|context))\b",
    re.IGNORECASE,
)
"""A sequence length in a head, as of "FLOPs (2048 tokens)" and "MACs at T = 8K", and what joins it to the words."""
_SIDE = re.compile(r"(\d+)(?:²|\^2|p|px| px)?|(\d+) ?[×x] ?\2")
OTHER_TARGETS = ("layer", "network", "net", "architecture", "arch", "backbone")
"""Columns of targets where none is headed target, model or method."""
TEXTS = ("name", "input", "note")
"""Columns that are the fields of a row, as in TOML, and print no number."""
NEAR = 0.77
"""The likeness of a head and a quantity, by difflib, from which on it is a slip: "acts" and "fps" are none."""
_HEAD = re.compile(
    rf"(?P<words>.*?)\s*(?:[(\[]\s*#?\s*(?P<unit>[KMGT]i|[KMGBTP%]?)\s*(?P<of>{MEASURED})?"
    r"\s*(?P<share>(?:/|per)\s*(?:token|sample))?\s*[)\]])?\s*",
    re.DOTALL,
)
"""A head: words, and in brackets a unit, what the numbers are of, and what each is divided by."""
RESERVED = {*NAMES, *LETTERS, *QUANTITIES}
"""Names of sizes and quantities, which follow from the target of a row and cannot be given."""
_FOLLOWS = "quantities and sizes follow from the target"


def load(path: str, text: str, rule: str, find_rule: bool, check_target: Callable[[str], None]) -> PublishedTable:
    """Return the table in ``text``, the content of the file ``path``; ``rule`` replaces that of the file.

    To ``find_rule``, a column of training needs none. ``check_target`` raises ValueError for an unknown target.
    Raises ValueError, with the line of each wrong row, for anything that is not in the format, or that takes a name
    which has a meaning already.
    """
    # a number with a point is a rounded one, whose digits count
    is_toml = path.lower().endswith(".toml")
    data, lines, wrong, ignored, sides, lengths = (
        (parse_toml(text, parse_float=str), _row_lines(text), [], [], {}, {}) if is_toml else _read_cells(text)
    )
    data = {"name": PurePath(path).stem, **data} | ({"rule": rule} if rule else {})
    parts: list[tuple[str, Callable[[], Any]]] = [("", partial(check, False, line)) for line in wrong]
    # the types of other data are wrong
    for line, row in zip(lines, data["row"], strict=False) if isinstance(data.get("row"), list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("target"), str):
            parts.append((f"line {line}: ", partial(check_target, split_target(row["target"])[0])))
    parts.append(("", partial(parse, data, lines)))
    table: PublishedTable = read_each(parts)[-1]
    _check_figures(table)
    if not find_rule:
        rules = {table.rule_of(figure) for figure in table.quantities.values()}
        is_named = all(isinstance(row.get("printed"), Mapping) for row in data["row"])
        is_used = table.rule in rules or (table.rule in QUANTITIES and not is_named)
        check(is_used or not table.rule, _without_effect(table))
    read_each([(f"line {row.line}: ", partial(_check_row, row, table)) for row in table.rows])
    # a cell is judged where another of its row cannot be
    cells = [
        replace(row, printed={name: text}, side=sides.get(row.line, 0), length=lengths.get(number, 0))
        for number, row in enumerate(table.rows)
        for name, text in row.printed.items()
    ]
    return replace(table, rows=tuple(cells), ignored=tuple(ignored))


def input_of(text: str) -> str:
    """Return the text of an input as --input takes it: of "1×3×224×224" and "1, 3, 224, 224" too."""
    return re.sub(r"(?<=\d)(?: ?[×x] ?|, )(?=\d)", ",", text)


def _without_effect(table: PublishedTable) -> str:
    """Return that the rule of a table changes none of its numbers, and what it is for."""
    what = f"the rule {table.rule!r} changes no number: the rows print {', '.join(table.quantities)}"
    if table.rule in QUANTITIES:
        head = QUANTITIES[table.rule].head
        of_none = f"{table.rule} is no rule, but the quantity of numbers of a TOML file that name none"
        return f"{what}; {of_none}; a column that holds {head} is headed {table.rule}"
    costs = "the FLOPs of training" if table.rule in TRAINING else "MACs and FLOPs of a forward pass"
    return f"{what}, and {table.rule} counts {costs}"


def _check_figures(table: PublishedTable) -> None:
    """Raise ValueError for a figure with a name or a head that has a meaning already."""
    heads = {*QUANTITIES, *(known.head.lower() for known in QUANTITIES.values())}
    for figure in table.columns:
        if figure.name != figure.quantity:
            words = {figure.name.lower()} if figure.quantity else {figure.name.lower(), figure.head.lower()}
            what = f"a figure cannot be {figure.name!r}, {figure.head!r}: {_FOLLOWS}"
            check(figure.name not in RESERVED and not heads & words, what)


def _check_row(row: Row, table: PublishedTable) -> None:
    """Raise ValueError for a row without a target or a number, and for a letter that it cannot give or does not."""
    for key in ("target", "printed"):
        check(getattr(row, key), f"a row without {key}; it has target and printed")
    for name in row.given:
        check(name not in RESERVED, f"given cannot have {name!r}: {_FOLLOWS}; set changes sizes")
    for figure in table.columns:
        if figure.name in row.printed:
            value, known = row.value_of(figure), [*LETTERS, *row.given]
            missing = expression(value).letters - {*known}
            check(not missing, f"{value!r} needs a size for {min(missing, default='')}; it has {', '.join(known)}")


def _row_lines(text: str) -> tuple[int, ...]:
    """Return the line at which each row of a TOML file stands."""
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*row\s*\]\]", line))


def _read_cells(
    text: str,
) -> tuple[dict[str, Any], tuple[int, ...], list[str], list[str], dict[int, int], dict[int, int]]:
    """Return a table of CSV or markdown as the TOML file that says the same, a row for each cell, the lines of these,
    an error for each line of more or fewer cells, the heads of columns that are no part of it, by line the side of
    images, where it is one number, and by row the sequence length, that of a head before that of a column."""
    (at, header), *lines = [*_split_lines(text)] or [(1, [])]
    columns = _columns(header)
    names = [name for name, _ in columns]
    is_long = {*HEADER} <= {*names}
    known = ("target", *TEXTS, *(HEADER if is_long else ()))
    heads = {name: head for name, head in zip(names, header, strict=True) if name not in known}
    read_each([(f"line {at}: ", partial(_check_typo, name, head)) for name, head in heads.items()])
    quantities = [name for name in heads if name in QUANTITIES]
    if names.count("target") != 1 or not (quantities or is_long):
        what = f"it must be {','.join(HEADER)}, or the target and its quantities, as {','.join(WIDE)}"
        near = [f"; {head!r} is near to {found}" for name, head in heads.items() if (found := _near(name))]
        raise ValueError(f"line {at}: the header is {','.join(header)!r}; {what}{''.join(near)}")
    for name in TEXTS:
        check(names.count(name) < 2, f"line {at}: two columns are {name}")
    check(lines, f"line {at}: the header is all there is; each line below it is a row")
    rows: list[dict[str, Any]] = []
    sides: dict[int, int] = {}
    length_texts: dict[int, str] = {}
    at_lines: list[int] = []
    of_heads: list[int] = []
    wrong = []
    place = names.index("target")
    for line, cells in lines:
        # sizes behind the commas of a target that has no quotes
        while len(cells) > len(names) and re.match(r"[A-Za-z_]\w*=", cells[place + 1]):
            cells = [*cells[:place], f"{cells[place]},{cells[place + 1]}", *cells[place + 2 :]]
        if len(cells) != len(names):
            wrong.append(
                f"line {line}: {len(cells)} cells; a row has {', '.join(names)}; a comma inside of a cell needs quotes"
            )
            continue
        for name, text in zip(names, cells, strict=True):
            if name in SIDES and (side := _SIDE.fullmatch(text)):
                sides[line] = int(side[1] or side[2])
            if name in LENGTHS and text not in EMPTY:
                length_texts[line] = text.replace(",", "")
        texts = {name: text for name, text in zip(names, cells, strict=True) if name in ("target", *TEXTS) and text}
        printed = [
            (head, *column, text)
            for head, column, text in zip(header, columns, cells, strict=True)
            if column[0] in quantities
        ]
        if is_long:
            head = cells[names.index("quantity")]
            printed = [(head, *_column(head), cells[names.index("printed")])]
        for head, name, unit, text in printed:
            # a cell without a number may be of a model that has no such cost
            if text not in EMPTY or is_long:
                number = text + unit if text[-1:].isdigit() else text
                _, length = _split_length(head)
                row: dict[str, Any] = {"target": "", **texts, "printed": {name: number}}
                if names.count(name) > 1 and length:
                    # numbers of one quantity have the lengths of their columns in their names
                    row["name"] = f"{row.get('name') or row['target']}, T = {length:,}"
                rows.append(row)
                at_lines.append(line)
                of_heads.append(length)
    _read_active(rows)
    ignored = [head for head, name in zip(header, names, strict=True) if name in heads and name not in quantities]
    of_lines = _lengths(length_texts)
    lengths = [own or of_lines.get(line, 0) for own, line in zip(of_heads, at_lines, strict=True)]
    return {"row": rows}, tuple(at_lines), wrong, ignored, sides, dict(enumerate(lengths))


def _lengths(texts: Mapping[int, str]) -> dict[int, int]:
    """Return the lengths in a column; none where some cell is no length."""
    are_all = all(text.isdecimal() and 0 < int(text) <= LONGEST for text in texts.values())
    return {line: int(text) for line, text in texts.items()} if are_all else {}


def _read_active(rows: Sequence[dict[str, Any]]) -> None:
    """Name the cells "activated" active parameters where some of them are numbers of parameters, and none a percentage:
    the head has both meanings in papers, that of mixtures of experts and that of mixtures of heads."""
    cells = [row["printed"] for row in rows if "activated" in row["printed"]]
    texts = [printed["activated"] for printed in cells]
    amounts = []
    for text in texts:
        # the check of the rows names a cell without a number
        with suppress(ValueError):
            amounts += [text] * is_amount(text, QUANTITIES["activated"])
    if amounts and not any(text.endswith("%") for text in texts):
        for printed in cells:
            printed["active"] = printed.pop("activated")


def _near(name: str) -> str:
    """Return the quantity of which the name of a column has a word, or to which it is nearest; empty where none is."""
    words = [word for word in name.split("_") if word in QUANTITIES]
    return next(iter(words or get_close_matches(name, QUANTITIES, 1)), "")


def _check_typo(name: str, head: str) -> None:
    """Raise ValueError for the head of a column that is no quantity and whose ``name`` looks like one: its letters in
    another order, or nearly its name."""
    if name not in QUANTITIES:
        swapped = [known for known in QUANTITIES if sorted(known) == sorted(name)]
        if swapped or get_close_matches(name, QUANTITIES, cutoff=NEAR):
            raise ValueError(f"unknown quantity {head!r} in the header; {choices(name, QUANTITIES)}")


def _split_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row of the first table of a markdown file, else of CSV."""
    lines = text.splitlines()
    if table := [(at, line.strip()) for at, line in enumerate(lines, 1) if line.lstrip().startswith("|")]:
        for number, (at, line) in enumerate(table, table[0][0]):
            cells = [cell.strip(" *`") for cell in line.removeprefix("|").removesuffix("|").split("|")]
            if at == number and not {*"".join(cells)} <= {*"-:"}:
                yield at, cells
        return
    first = next(filter(str.strip, lines), "")
    rows = csv.reader(lines, delimiter=next((mark for mark in ";\t" if mark in first), ","), skipinitialspace=True)
    try:
        for row in rows:
            if any(map(str.strip, row)):
                yield rows.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None


def _columns(header: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the unit of each column; beside a column "target" that of models has names to print, and
    without both the first of OTHER_TARGETS is the target."""
    columns = [_column(head) for head in header]
    names = [name for name, _ in columns]
    others = [at for at, name in enumerate(names) if name in OTHER_TARGETS]
    if others and "target" not in names:
        columns[others[0]] = ("target", "")
    heads = [head.strip().lower() for head in header]
    if "target" in heads:
        columns = [
            ("name", unit) if name == "target" and head != "target" else (name, unit)
            for head, (name, unit) in zip(heads, columns, strict=True)
        ]
    return columns


def _column(head: str) -> tuple[str, str]:
    """Return the name of a column and the unit in its head: of "Params (M)", "GMACs/token", "KV cache (KB/token)"."""
    head, _ = _split_length(head)
    found = _HEAD.fullmatch(head).groupdict(default="")  # type: ignore[union-attr]
    # a KV cache has bytes or elements
    words, unit, of = found["words"], found["unit"], found["of"].lower()
    words += f" {of.rstrip('s')}s" * of.startswith("element") + f" {found['share']}"
    parts = re.findall(r"[a-z0-9]+", words.lower().replace("/", " per "))
    name = _name(parts)
    if name in ("model", "method"):
        name = "target"
    for at, part in enumerate(parts if name not in QUANTITIES else ()):
        other = _name([*parts[:at], part[1:], *parts[at + 1 :]])
        if part[1:] and part[0].upper() in UNITS and other in QUANTITIES:
            return other, part[0].upper()
    return name, unit


def _split_length(head: str) -> tuple[str, int]:
    """Return a head without the sequence length that it names, and that length; 0 where it names none or several."""
    found = [*_LENGTH.finditer(head)]
    if len(found) != 1:
        return head, 0
    number, unit = next(found[0].group(at, at + 1) for at in (1, 3) if found[0][at])
    length = int(number.replace(",", "")) * (1024 if unit else 1)
    rest = head[: found[0].start()] + head[found[0].end() :]
    # "(2048 tokens)" leaves an empty pair of brackets, "(2048 tokens, G)" a comma
    return re.sub(r"([(\[])\s*[,;]\s*", r"\1", re.sub(r"[(\[]\s*[)\]]", "", rest)).strip(), length


def is_one_of(head: str, names: Sequence[str]) -> bool:
    """Return whether a column has one of ``names``, SIDES or LENGTHS."""
    return _column(head)[0] in names


def _name(parts: Sequence[str]) -> str:
    """Return the words of a head as the name of a quantity is written."""
    name = "_".join(WORDS.get(part, part) for part in parts)
    for phrase, word in PHRASES.items():
        name = re.sub(rf"^{phrase}", word, name)
    return name
