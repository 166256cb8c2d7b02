"""Tables of any paper: a TOML or CSV file that names a target and its printed numbers row by row, read and judged.

A TOML file has KEYS of the table, and a ``[[row]]`` with ROW_KEYS for each printed row; ``printed`` is a number, or
numbers by quantity. A ``[[figure]]`` adds a quantity, as in the tables of this folder. A CSV file has the columns of
HEADER. A target may have sizes behind commas. A number may have a unit, and is compared at its printed digits.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.formulas.conventions import CONVENTIONS, TRAINING
from headcount.formulas.published.expressions import expression
from headcount.formulas.published.figures import EMPTY, LETTERS, Cases, Figure, Row, UnknownCostError, evaluate
from headcount.formulas.published.figures import QUANTITIES as PRINTED
from headcount.formulas.published.rounding import Interval, ends, fixed, number, read
from headcount.formulas.published.typed import parse_toml
from headcount.formulas.published.verdicts import Judged, by_other_digits, cut_off
from headcount.formulas.symbols import NAMES

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
RESERVED = {*NAMES, *LETTERS, *QUANTITIES, *PRINTED}
"""Names of sizes and quantities, which follow from the target of a row and cannot be given."""
FORWARD = ("exact", "exact_and_norms", "projections", "projections_and_ffn_biases", "equations_18_19")
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
CUT = ", digits cut off"
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

    def check_rules(self) -> None:
        """Raise ValueError where a quantity of training has no rule of training."""
        for name in self.quantities():
            self.rule_of(self.figures[name])

    def check_letters(self) -> None:
        """Raise ValueError, with the line of the row, for a letter of a quantity that is not given."""
        for line, row in zip(self.lines, self.rows, strict=True):
            for name in row.printed:
                value = self.figures[name].value
                if missing := expression(value).letters - LETTERS.keys() - row.given.keys():
                    valid = ", ".join((*LETTERS, *row.given))
                    raise ValueError(f"line {line}: {value!r} needs a size for {min(missing)}; it has {valid}")

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
        digits = ["truncated to the printed digits"] if figure.truncated else []
        if not letters & {"work", "macs"}:
            return "; ".join([f"{figure.head}, embeddings included: {figure.value}", *digits]) + "."
        rule = CONVENTIONS[self.rule_of(figure)]
        parts = [f"{figure.head} by the rule {rule.name}: {rule.about.rstrip('.')}"]
        parts += ["2 FLOPs for each multiply-accumulate"] if name == "flops" else []
        parts += [f"T = {', '.join(f'{length:,}' for length in sorted(set(lengths)))}"] if lengths else []
        parts += [f"peak {self.peak} FLOP/s"] if "peak" in letters else []
        parts += digits
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
    try:
        header, rows = next(lines, []), []
        _check(tuple(header) == HEADER, f"line 1: the header is {','.join(header)!r}; it must be {','.join(HEADER)}")
        for cells in filter(None, lines):
            what = f"line {lines.line_num}: {len(cells)} cells; a row has {', '.join(HEADER)}"
            _check(len(cells) == len(HEADER), what)
            target, quantity, printed = cells
            rows.append({"target": target, "printed": {quantity: printed}})
    except csv.Error as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None
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
    data = _read_csv(text) if path.endswith(".csv") else parse_toml(text, parse_float=str)
    _check_keys(data, KEYS)
    rule, peak, zeros = rule or data.get("rule", ""), str(data.get("peak", "")), data.get("trailing_zeros", False)
    _check(rule in ("", *RULES), f"unknown rule {rule!r}", RULES)
    _check(data.get("row"), "no row; a [[row]] has target and printed")
    exact_peak = {}
    if peak:
        value = _parse("peak", number, peak)
        exact_peak = {"peak": f"{value.numerator}/{value.denominator}"}
    columns = [{"name": name, "head": head, "value": value} for name, (head, value) in QUANTITIES.items()]
    columns += [_figure(one) for one in data.get("figure", ())]
    figures = {one["name"]: Figure(**one, trailing_zeros=zeros) for one in columns}
    _check(len(figures) == len(columns), "two figures have one name")
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


def _figure(found: Any) -> dict[str, str]:
    """Return a quantity that the table adds. Raises ValueError for a name or a head that has a meaning already."""
    fine = isinstance(found, dict) and found.keys() == {"name", "head", "value"}
    _check(fine, "a figure has name, head and value")
    figure = {key: str(value) for key, value in found.items()}
    heads = {*QUANTITIES, *(head.lower() for head, _ in (*QUANTITIES.values(), *PRINTED.values()))}
    taken = figure["name"] in RESERVED or heads & {figure["name"].lower(), figure["head"].lower()}
    _check(not taken, f"a figure cannot be {figure['name']!r}, {figure['head']!r}: {_FOLLOWS}")
    _check(not _parse("value", expression, figure["value"]).costs, f"value {figure['value']!r} calls a function")
    return figure


_FOLLOWS = "quantities and sizes follow from the target"


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
    target, sizes = _target_sizes(row["target"])
    given = {**table.get("given", {}), **row.get("given", {})} | given
    for name, value in given.items():
        _check(name not in RESERVED, f"given cannot have {name!r}: {_FOLLOWS}; set changes sizes")
        _check(isinstance(value, (int, str)) and not isinstance(value, bool), f"{name} cannot be {value!r}")
        _parse(name, lambda _, value=value: ends(value), value)
    changed = {**table.get("set", {}), **sizes, **row.get("set", {})}
    for name, value in changed.items():
        _check(_is_plain(value), f"{name} cannot be {value}")
    fields = {"name": row["target"], **row, "set": changed, "given": given}
    fields |= {"preset": target, "printed": {name: str(text) for name, text in printed.items()}}
    del fields["target"]
    return Row(**fields)


def _target_sizes(text: str) -> tuple[str, dict[str, str]]:
    """Return a target and the sizes behind its commas; a size may hold commas."""
    target, *words = re.split(r",(?=[^\W\d][\w.]*=)", text)
    return target, dict(word.partition("=")[::2] for word in words)


def _is_plain(value: Any) -> bool:
    """Return whether ``value`` can be an argument: numbers, texts and lists of them, but no dates."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _units(figure: Figure) -> dict[str, str]:
    """Return the values of a cost in each unit by the words that name it, its own first."""
    value = figure.value
    if figure.name in ("macs", "flops"):
        # a column of FLOPs may hold MACs, and the other way round
        costs = {" MACs": "macs", " FLOPs": "2 * macs"}
        own = next(name for name, text in costs.items() if text == value)
        costs = {own: value, **costs}
        costs |= {f"{own} per token": f"{value} / T", f"{own} per sample": f"{value} / samples"}
        return costs
    if figure.name.startswith("training"):
        costs = {"": value, HALF: f"{value} / 2"}
        if figure.name == "training_flops_per_token":
            costs[" per sample"] = f"{value} * T / samples"
        return costs
    return {"": value}


def candidates(figure: Figure, every: bool = False) -> list[Figure]:
    """Return a column under each change to try, with the name of the rule: another rule, or another unit.

    ``every``: each rule in each unit, and rules of training too for a cost of a forward pass.
    """
    used = expression(figure.value).letters
    if not used & {"work", "macs"}:
        values = PARAMETERS if figure.value in PARAMETERS.values() else {figure.value: figure.value}
        tried = [(name, text, "exact") for name, text in values.items()]
        return [replace(figure, name=name, value=text, rule=rule) for name, text, rule in tried]
    units = _units(figure)
    own = next(iter(units))
    tried = [
        (rule + unit, text, rule)
        for rule in (TRAINING if "work" in used else FORWARD)
        for unit, text in units.items()
        if every or unit == own or rule == figure.rule
    ]
    if every and "macs" in used:
        costs = {" per token": "work", " per token, forward": "work / 3", " per batch": "work * T"}
        costs[" per token, MACs for FLOPs"] = "work / 2"
        tried += [(rule + way, text, rule) for way, text in costs.items() for rule in TRAINING]
    return [replace(figure, name=name, value=text, rule=rule) for name, text, rule in tried]


def with_digits(table: OwnTable, cases: Cases) -> OwnTable:
    """Return the table with the digits of columns cut off where they are throughout, and each rule with its column.

    Raises ValueError, with the line of the row, where a value cannot be computed.
    """
    figures, cells = {}, []
    for name in table.quantities():
        figures[name] = replace(table.figures[name], rule=table.rule_of(table.figures[name]))
    for line, row in zip(table.lines, table.rows, strict=True):
        for name, text in row.printed.items():
            if text not in EMPTY:
                cells.append((figures[name], _value(line, row, figures[name], cases), text))
    cut = cut_off(cells)
    judged = {name: replace(figure, truncated=name in cut) for name, figure in figures.items()}
    return replace(table, figures={**table.figures, **judged})


def _value(line: int, row: Row, figure: Figure, cases: Cases) -> Interval:
    try:
        return evaluate(row, figure, cases)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"line {line}: {error}") from None


def judge(table: OwnTable, cases: Cases, why_not: Applies) -> Iterator[Judged]:
    """Yield every cell of a table :func:`with_digits` with its verdict. Raises ValueError as that does."""
    for line, row in zip(table.lines, table.rows, strict=True):
        for name, text in row.printed.items():
            figure = replace(table.figures[name], rule=table.rule_of(table.figures[name]))
            value = _value(line, row, figure, cases)
            if text in EMPTY:
                verdict, because = "no printed value", ""
            elif figure.prints(value, text):
                verdict, because = "reproduced", ""
            else:
                verdict, because = _otherwise(row, figure, text, value, cases, why_not)
            because = "; ".join(filter(None, (because, row.note)))
            yield Judged(replace(row, verdicts={name: verdict}), figure, text, value, verdict, because)


def _otherwise(row: Row, figure: Figure, text: str, value: Interval, cases: Cases, why_not: Applies):
    """Return the verdict on a cell that its rule does not print, and the arithmetic of each single change tried."""
    by_rule, rule = figure.format(value, text), figure.rule
    if replace(figure, trailing_zeros=True).prints(value, text):
        return "explained", f"{by_rule} prints {text} where its last zeros are no printed digits"
    if because := by_other_digits(figure, value, text):
        return "explained", because
    tried: dict[str, Interval] = {}
    for one, by_one in _evaluated(row, figure, cases, why_not):
        tried |= _another(one, by_one, tried)
    at = dict(_at_lengths(row, figure, cases)) if expression(figure.value).letters & {"work", "macs"} else {}
    lengths = f", nor is it printed at T = {LENGTHS[0]}, {LENGTHS[1]}, … {LENGTHS[-1]:,}" if at else ""
    prints = [name for name, one in (tried | at).items() if figure.prints(one, text)]
    # the column's own rule, in another unit or at another length, comes before other rules
    prints = [name for name in prints if name.startswith(f"{rule} ")] or prints
    if prints:
        shown = " and ".join(f"{name} gives {figure.format((tried | at)[name], text)}" for name in prints)
        return "explained", f"by the rule {by_rule}; {shown}"
    shown = ", ".join(f"{name} {figure.format(one, text)}" for name, one in tried.items())
    ratio = fixed(value.low / number(text), 4)
    return "no rule found", f"by the rule / printed = {ratio}; no rule tried prints it: {shown}{lengths}"


def _another(one: Figure, value: Any, tried: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate's value by its name; nothing where its rule has it already, as per token of one token."""
    known = any(name.startswith(one.rule) and other == value for name, other in tried.items())
    return {} if known else {one.name: value}


def _evaluated(row: Row, figure: Figure, cases: Cases, why_not: Applies) -> Iterator[tuple[Figure, Interval]]:
    """Yield each candidate that applies to a model whose costs it needs are known, with the cell by it."""
    for one in candidates(figure):
        if not why_not(row, one.rule):
            try:
                yield one, evaluate(row, one, cases)
            except UnknownCostError:
                continue


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
    figure, tried = table.figures[name], {}
    cells = [(row, row.printed[name]) for row in table.rows if row.printed.get(name, "") not in EMPTY]
    by_rule = {}
    for one in candidates(figure, every=True):
        # a rule that does not apply to a row is no rule of the column
        if not any(why_not(row, one.rule) for row, _ in cells):
            try:
                values = [evaluate(row, one, cases) for row, _ in cells]
            except UnknownCostError:
                continue
            by_rule |= dict.fromkeys(_another(one, values, tried), one)
            tried |= _another(one, values, tried)
    fits = []
    for rule, values in tried.items():
        one = by_rule[rule]
        judged = [(one, value, text) for value, (_, text) in zip(values, cells, strict=True)]
        cut = bool(cut_off(judged))
        prints = sum(replace(one, truncated=cut).prints(value, text) for _, value, text in judged)
        far = max(abs(value.low / number(text) - 1) for _, value, text in judged)
        fits.append({"rule": rule + CUT * cut, "prints": prints, "deviation": 100 * far})
    return sorted(fits, key=lambda fit: (-fit["prints"], fit["deviation"]))
