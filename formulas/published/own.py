"""Tables of any paper: a TOML or CSV file that names a target and its printed numbers row by row, read and judged.

A TOML file has KEYS of the table, and a ``[[row]]`` with ROW_KEYS for each printed row; ``printed`` is a number, or
numbers by quantity. A ``[[figure]]`` adds a quantity, as in the tables of this folder. A CSV file has the columns of
HEADER. A number may have a unit, and is compared at its printed digits.
"""

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import EMPTY, Cases, Figure, Row, evaluate
from headcount.formulas.published.rounding import Interval, number, read
from headcount.formulas.published.verdicts import Judged

HEADER = ("target", "quantity", "printed")
"""Columns of a CSV file."""
SIZES = {"set": dict, "given": dict}
KEYS = {"title": str, "source": str, "rule": str, "peak": (str, int), "trailing_zeros": bool}
KEYS |= SIZES | {"figure": list, "row": list}
"""Keys of a table with their types; ``set`` and ``given`` are those of all rows."""
ROW_KEYS = {"target": str, "printed": (dict, str, int), "name": str, **SIZES, "input": str, "note": str}
QUANTITIES = {
    "macs": ("MACs", "macs"),
    "flops": ("FLOPs", "2 * macs"),
    "params": ("parameters", "N"),
    "active_params": ("active parameters", "N_active"),
    "training_flops_per_token": ("training FLOPs per token", "work"),
    "training_flops": ("training FLOPs", "work * tokens"),
    "mfu": ("MFU", "100 * work * tokens / (seconds * devices * peak)"),
}
"""Head and value of each quantity; ``macs`` are those of a forward pass under the rule, ``work`` is that of figures."""
FORWARD = ("exact", "fvcore", "projections", "projections_and_ffn_biases", "equations_18_19")
"""Rules of a forward pass."""
RULES = (*QUANTITIES, *FORWARD, *TRAINING)
"""Names that ``rule`` may have: a rule, or a quantity whose column is then the only one."""
PARAMETERS = {
    "all": "N",
    "active": "N_active",
    "all without embeddings": "N - N_embedding",
    "active without embeddings": "N_active - N_embedding",
}
HALF = " MACs for FLOPs"
LENGTHS = tuple(2**power for power in range(7, 18))
"""Sequence lengths tried where a rule does not print a cost."""
MIN_ROWS = 4
"""Number of rows below which a rule may fit by chance."""
Applies = Callable[[Row, str], str]
"""Returns why a rule does not apply to the model of a row; empty where it does."""


@dataclass(frozen=True, kw_only=True)
class OwnTable:
    """A table of the file ``path``; ``figures``: its columns by quantity, ``rule``: a rule, empty for none.

    ``lines``: the line of each row in the file.
    """

    path: str
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    figures: Mapping[str, Figure]
    rule: str
    title: str
    source: str
    peak: str

    def quantities(self) -> tuple[str, ...]:
        """Return the quantities of which a row prints a value, in order."""
        cells = (cell for row in self.rows for cell in row.printed.items())
        return tuple(dict.fromkeys(name for name, text in cells if text not in EMPTY))

    def rule_of(self, figure: Figure) -> str:
        """Return the rule of a column. Raises ValueError where a quantity of training has no rule of training."""
        training = "work" in expression(figure.value).letters
        if training and self.rule not in TRAINING:
            valid = f"choose from {', '.join(TRAINING)}; --find-rule tries all"
            raise ValueError(f"{figure.name} needs a rule of training, not {self.rule!r}; {valid}")
        return self.rule if training or self.rule in FORWARD else "exact"

    def quote(self, name: str, lengths: Sequence[int]) -> str:
        """Return a sentence for a paper: the quantity, its rule, what that counts, T, and the peak where it is used."""
        figure, letters = self.figures[name], expression(self.figures[name].value).letters
        if not letters & {"work", "macs"}:
            return f"{figure.head}, embeddings included: {figure.value}."
        rule = CONVENTIONS[self.rule_of(figure)]
        parts = [f"{figure.head} by the rule {rule.name}: {rule.about.rstrip('.')}"]
        parts += ["2 FLOPs for each multiply-accumulate"] if name == "flops" else []
        parts += [f"T = {', '.join(f'{length:,}' for length in sorted(set(lengths)))}"] if lengths else []
        parts += [f"peak {self.peak} FLOP/s"] if "peak" in letters else []
        return "; ".join(parts) + (f" ({rule.source})." if rule.source else ".")


def _row_lines(path: str, text: str) -> tuple[int, ...]:
    """Return the line at which each row of a file stands."""
    if path.endswith(".csv"):
        cells = csv.reader(text.splitlines())
        return tuple(cells.line_num for row in cells if row)[1:]
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*row\s*\]\]", line))


def _read_csv(text: str) -> dict[str, Any]:
    """Return a CSV file as the TOML file that says the same."""
    lines = csv.reader(text.splitlines())
    header, rows = next(lines, []), []
    _check(tuple(header) == HEADER, f"line 1: the header is {','.join(header)!r}; it must be {','.join(HEADER)}")
    for cells in filter(None, lines):
        _check(len(cells) == len(HEADER), f"line {lines.line_num}: {len(cells)} cells; a row has {', '.join(HEADER)}")
        name, quantity, printed = cells
        target, *words = name.split(",")
        changed = dict(word.partition("=")[::2] for word in words)
        rows.append({"target": target, "name": name, "set": changed, "printed": {quantity: printed}})
    return {"row": rows}


def _check(fine: Any, what: str, valid: Iterable[str] = ()) -> None:
    if not fine:
        raise ValueError(what + (f"; choose from {', '.join(valid)}" if valid else ""))


def _parse(key: str, parser: Callable[[str], Any], value: Any) -> Any:
    try:
        return parser(str(value))
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def _check_keys(found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for key, value in found.items():
        _check(key in kinds, f"unknown key {key!r}", kinds)
        _check(isinstance(value, kinds[key]), f"{key} cannot be {value!r}")


def load(path: str, text: str, rule: str = "") -> OwnTable:
    """Return the table in ``text``, the content of the file ``path``; ``rule`` replaces that of the file.

    Raises ValueError, with the line of the row, for anything that is not in the format.
    """
    # a number with a point is a rounded one, whose digits count
    data = _read_csv(text) if path.endswith(".csv") else tomllib.loads(text, parse_float=str)
    _check_keys(data, KEYS)
    rule, peak, zeros = rule or data.get("rule", ""), str(data.get("peak", "")), data.get("trailing_zeros", False)
    _check(rule in ("", *RULES), f"unknown rule {rule!r}", RULES)
    _check(data.get("row"), "no row; a [[row]] has target and printed")
    exact_peak = {"peak": f"{_parse('peak', number, peak)}/1"} if peak else {}
    columns = [{"name": name, "head": head, "value": value} for name, (head, value) in QUANTITIES.items()]
    for one in data.get("figure", ()):
        fine = isinstance(one, dict) and one.keys() == columns[0].keys()
        _check(fine, "a figure has name, head and value")
        columns.append({key: str(value) for key, value in one.items()})
        _parse("value", expression, columns[-1]["value"])
    figures = {one["name"]: Figure(**one, trailing_zeros=zeros) for one in columns}
    only = rule if rule in QUANTITIES else "training_flops_per_token" if rule in TRAINING else "macs"
    rows = []
    # rows in one array have no lines of their own
    lines = _row_lines(path, text)
    lines = lines if len(lines) == len(data["row"]) else (1,) * len(data["row"])
    for line, row in zip(lines, data["row"], strict=True):
        try:
            rows.append(_row(row, data, exact_peak, only, figures))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
    return OwnTable(
        path=path,
        rows=tuple(rows),
        lines=lines,
        figures=figures,
        rule="" if rule in QUANTITIES else rule,
        title=data.get("title", "printed numbers"),
        source=data.get("source", ""),
        peak=peak,
    )


def _row(row: Any, table: Mapping[str, Any], given: Mapping[str, str], only: str, known: Mapping[str, Figure]) -> Row:
    """Return a row with the sizes of its ``table``; a number without a quantity is of the quantity ``only``."""
    _check(isinstance(row, dict), "it is no table; write [[row]]")
    _check_keys(row, ROW_KEYS)
    for key in ("target", "printed"):
        _check(row.get(key), f"a row without {key}; it has target and printed")
    printed = row["printed"] if isinstance(row["printed"], dict) else {only: row["printed"]}
    for name, text in printed.items():
        _check(name in known, f"unknown quantity {name!r}", known)
        if str(text) not in EMPTY:
            _parse("printed", read, text)
    shared = {key: {**table.get(key, {}), **row.get(key, {})} for key in SIZES}
    for name, value in shared["given"].items():
        _check(isinstance(value, (int, str)), f"{name} cannot be {value!r}")
    fields = {"name": row["target"], **row, **shared, "given": shared["given"] | given}
    fields["printed"] = {name: str(text) for name, text in printed.items()}
    return Row(preset=fields.pop("target"), **fields)


def candidates(figure: Figure, every: bool = False) -> list[Figure]:
    """Return a column under each rule to try, with the name of the rule; ``every``: rules of training too for a cost of
    a forward pass."""
    used, value = expression(figure.value).letters, figure.value
    if not used & {"work", "macs"}:
        tried = [(name, text, "exact") for name, text in PARAMETERS.items() if used & {"N", "N_active"}]
        return [replace(figure, name=name, value=text, rule=rule) for name, text, rule in tried]
    # a column of FLOPs may hold MACs, and the other way round
    ways = {"": value}
    if figure.name in ("macs", "flops"):
        ways = {" MACs": "macs", " FLOPs": "2 * macs"}
    elif figure.name.startswith("training"):
        ways = {"": value, HALF: f"{value} / 2"}
    tried = [
        (rule + way, text, rule) for rule in (TRAINING if "work" in used else FORWARD) for way, text in ways.items()
    ]
    if every and "macs" in used:
        costs = {" per token": "work", " per token, forward": "work / 3", " per batch": "work * T"}
        costs[" per token, MACs for FLOPs"] = "work / 2"
        tried += [(rule + way, text, rule) for way, text in costs.items() for rule in TRAINING]
    return [replace(figure, name=name, value=text, rule=rule) for name, text, rule in tried]


def judge(table: OwnTable, cases: Cases, why_not: Applies) -> Iterator[Judged]:
    """Yield every cell with its verdict. Raises ValueError, with the line of the row, where a rule does not apply."""
    for line, row in zip(table.lines, table.rows, strict=True):
        for name, text in row.printed.items():
            rule = table.rule_of(table.figures[name])
            figure = replace(table.figures[name], rule=rule)
            try:
                if reason := why_not(row, rule):
                    raise ValueError(reason)
                value = evaluate(row, figure, cases)
            except (ValueError, ZeroDivisionError) as error:
                raise ValueError(f"line {line}: {error}") from None
            if text in EMPTY:
                verdict, because = "no printed value", ""
            elif figure.prints(value, text):
                verdict, because = "reproduced", ""
            else:
                verdict, because = _otherwise(row, figure, text, value, cases, why_not)
            because = "; ".join(filter(None, (because, row.note)))
            yield Judged(replace(row, verdicts={name: verdict}), figure, text, value, verdict, because)


def _otherwise(row: Row, figure: Figure, text: str, value: Interval, cases: Cases, why_not: Applies):
    """Return the verdict on a cell that its rule does not print, and the arithmetic."""
    by_rule, rule = figure.format(value, text), figure.rule
    if replace(figure, trailing_zeros=True).prints(value, text):
        return "explained", f"{by_rule} prints {text} where its last zeros are no printed digits"
    tried = {one.name: evaluate(row, one, cases) for one in candidates(figure) if not why_not(row, one.rule)}
    at = dict(_at_lengths(row, figure, cases)) if expression(figure.value).letters & {"work", "macs"} else {}
    lengths = f", nor is it printed at T = {LENGTHS[0]}, {LENGTHS[1]}, … {LENGTHS[-1]:,}" if at else ""
    prints = [name for name, one in (tried | at).items() if figure.prints(one, text)]
    # the column's own rule, in another unit or at another length, comes before other rules
    prints = [name for name in prints if name.startswith(f"{rule} ")] or prints
    if prints:
        shown = " and ".join(f"{name} gives {figure.format((tried | at)[name], text)}" for name in prints)
        return "explained", f"by the rule {by_rule}; {shown}"
    # each rule in one unit; the other is twice or half of it
    shown = ", ".join(f"{name} {figure.format(one, text)}" for name, one in tried.items() if HALF not in name)
    ratio = float(value.low / number(text))
    return "not reproducible", f"by the rule / printed = {ratio:.4f}; no rule tried prints it: {shown}{lengths}"


def _at_lengths(row: Row, figure: Figure, cases: Cases) -> Iterator[tuple[str, Interval]]:
    """Yield a cost by its rule at each of LENGTHS for which the model has positions; none where it has no length."""
    for size in LENGTHS if cases(row.preset, row.set).length else ():
        try:
            yield f"{figure.rule} at T = {size:,}", evaluate(row, figure, cases, {"seq_len": size})
        except ValueError:
            continue


def find_rule(table: OwnTable, name: str, cases: Cases, why_not: Applies) -> list[dict[str, Any]]:
    """Return the rules tried on the column ``name``, best first: most cells printed, then least deviation.

    ``prints``: number of printed cells that a ``rule`` reproduces; ``deviation``: its largest one in percent.
    """
    figure, fits = table.figures[name], []
    cells = [(row, row.printed[name]) for row in table.rows if row.printed.get(name, "") not in EMPTY]
    for one in candidates(figure, every=True):
        # a rule that does not apply to a row is no rule of the column
        if not any(why_not(row, one.rule) for row, _ in cells):
            values = [(text, evaluate(row, one, cases)) for row, text in cells]
            prints = sum(one.prints(value, text) for text, value in values)
            far = max(abs(value.low / number(text) - 1) for text, value in values)
            fits.append({"rule": one.name, "prints": prints, "deviation": 100 * far})
    return sorted(fits, key=lambda fit: (-fit["prints"], fit["deviation"]))
