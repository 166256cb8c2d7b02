"""``headcount grid``: printed equations, exact MACs and counts of one attention layer at every combination of sizes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from operator import attrgetter
from typing import Any

from headcount.bench.case import Case
from headcount.bench.column import Column, macs_column, params_column, plural
from headcount.bench.counting.count import count, disagreements, exit_code, reasons, rule_agreement
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError, read_toml
from headcount.bench.macs.columns import Accounts, counter_columns
from headcount.bench.output.progress import with_progress
from headcount.bench.result import Row, Table, to_json
from headcount.bench.variants.variant import Variant, variants_with
from headcount.formulas import conventions, mha
from headcount.formulas.ledger import Ledger
from headcount.formulas.symbols import format_sizes
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.numbers import parse_int
from headcount.models.configs.suggest import choices, did_you_mean
from headcount.models.configs.targets import split_words

DEFAULT_D_MODEL = 512
MAX_POINTS = 100_000
"""Limit of the number of points; all layers are built before the first one is counted."""
COMMON = ("d_m", "T", "S", "B")


@dataclass(frozen=True)
class Grid:
    """An attention variant and the values of each letter; in the rows the last letter varies fastest."""

    variant: Variant
    values: Mapping[str, tuple[int, ...]]

    def points(self) -> list[dict[str, int]]:
        """Return every combination of values as a size for each letter."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]


@dataclass(frozen=True)
class GridRow(Row):
    """One layer: its count, that of its ideal form if it has one, and what they are compared with.

    Attributes:
        point: the size of each letter.
        case: the layer.
        count, ideal: the counts of the layer and of its ideal form.
        printed_equation_macs: by the equation of the layer's paper; None where it prints none.
        omitted_macs: MACs that Eq. 18 and 19 leave out, by name.
        eq19_macs: dense attention of the same model width by Eq. 19; None where T and S differ.
        mha_same_d_model_macs: dense attention of the same model width, exact.
        mha_same_inner_width_macs: dense attention of the same inner width, exact.
        to_mha, to_inner: the count over each of these two.
        ideal_to_dense: the ideal form over dense attention with all heads.
        accounts: the values of --columns.
    """

    point: Mapping[str, int]
    case: Case
    count: Count
    ideal: Count | None
    printed_equation_macs: int | None
    omitted_macs: Mapping[str, int]
    eq19_macs: int | None
    mha_same_d_model_macs: int
    mha_same_inner_width_macs: int
    to_mha: Fraction
    to_inner: Fraction
    ideal_to_dense: Fraction | None
    accounts: Accounts = Accounts()

    @property
    def forms(self) -> list[tuple[Case, Count]]:
        """The layer, and its ideal form, each with its count."""
        of_ideal = [(self.case.ideal, self.ideal)] if self.ideal else []
        return [(self.case, self.count), *of_ideal]

    @property
    def active_params(self) -> int:
        """Parameters that a token uses."""
        return self.count.ledger.active_params

    @property
    def ideal_active_params(self) -> int | None:
        """Parameters that a token uses of the ideal form; None where there is none."""
        return self.ideal and self.ideal.ledger.active_params

    @property
    def failures(self) -> list[str]:
        """Counts that are not as their counter's rules predict."""
        return [line for case, count in self.forms for line in disagreements(count, case.name)]

    @property
    def exit_code(self) -> int:
        """That of a tool's error where one failed."""
        return exit_code(*(count for _, count in self.forms))

    @property
    def notes(self) -> list[str]:
        """The failures, where and why a tool has counted elsewhere, and the reasons for missing accounts."""
        elsewhere = dict.fromkeys(reason for _, one in self.forms for reason in reasons(one))
        return [*self.failures, *elsewhere, *self.accounts.notes]

    def to_json(self) -> dict[str, Any]:
        """Return the fields but the case, of which the input's lengths."""
        data = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "case"}
        return to_json(data | {"input": dict(self.case.lengths)})


def columns(grid: Grid, first: GridRow) -> list[Column]:
    """Return the columns of the rows of a grid, of which ``first`` is one, without those of --columns."""
    printed, routed = grid.variant.printed, bool(grid.variant.config.routing_letters)
    ratio = partial(Column, kind="fixed", digits=4)

    found = [Column(letter, letter, kind="int", priority=0, value=partial(_size, letter)) for letter in grid.values]
    if printed:
        found.append(macs_column("printed_equation_macs", printed.name, priority=2))
        found.append(_omitted_column("values", "+ second\nT*S product"))
    if routed:
        found.append(_omitted_column("router", "+ router" if printed else "of which\nrouters"))
    exact = "= exact" if printed else "MACs\nas released" if first.ideal else "MACs\nexact"
    found.append(macs_column("macs", exact, priority=0, value=attrgetter("count.ledger.macs")))
    found += counter_columns([tool.counter for tool in first.count.tools], priority=3)
    if first.ideal:
        found.append(macs_column("ideal_macs", "MACs\nideal", priority=0, value=attrgetter("ideal.ledger.macs")))
    found.append(params_column("params", "params", priority=4, value=attrgetter("count.ledger.params")))
    if routed:
        found.append(params_column("active_params", "params\nactive", priority=5))
    if first.ideal:
        found.append(params_column("ideal_active_params", "active\nideal", priority=5))
    found.append(macs_column("eq19_macs", "Eq. 19\nsame d_m", priority=5))
    found.append(ratio("to_mha", "MACs over MHA\nsame d_m"))
    found.append(ratio("to_inner", "MACs over MHA\nsame inner width"))
    if first.ideal:
        found.append(ratio("ideal_to_dense", "ideal over MHA\nsame h, g"))
    return found


def _size(letter: str, row: GridRow) -> int:
    return row.point[letter]


def _omitted_column(name: str, head: str) -> Column:
    def omitted_macs(row: GridRow) -> int:
        return row.omitted_macs.get(name, 0)

    return macs_column(f"omitted_macs.{name}", head, priority=3, value=omitted_macs)


def parse(text: str) -> Grid:
    """Return the grid of a text such as ``'K=1,2 E=8 D=64 T=10,128'``, or of a TOML file with the same keys.

    ``moa:K=1,2,E=8,D=64,T=10,128`` names the variant too, as a TARGET does. Raises UsageError, with the valid keys, for
    a key, a value, a variant or a file that cannot be used.
    """
    known = variants_with("grid")
    name, colon, sizes = text.partition(":")
    if text.endswith(".toml"):
        text = _words_of(text)
    elif colon:
        if name not in known:
            raise UsageError(f"no grid of {name!r}; {choices(name, known)}")
        known, text = {name: known[name]}, " ".join(split_words(sizes))
    values, variants = _read_words(text), list(known.values())
    own = [key for key in values if key not in COMMON]
    # the first variant that has every letter: MHA where s and r are not given
    variant = next((variant for variant in variants if own and {*own} <= {*variant.grid.letters}), None)
    if variant is None:
        kinds = " or of ".join(f"{variant.label} ({', '.join(variant.grid.letters)})" for variant in variants)
        letters = {*COMMON, *(letter for variant in variants for letter in variant.grid.letters)}
        unknown = [f"; {key!r} is no size{did_you_mean(key, letters)}" for key in own if key not in letters]
        raise UsageError(f"a grid is of {kinds}, with {', '.join(COMMON)}{''.join(unknown[:1])}")
    for key, sizes in values.items():
        least = 0 if key in variant.grid.may_be_zero else 1
        if min(sizes) < least:
            raise UsageError(f"grid values must be at least {least}, not {key}={min(sizes)}")
    missing = [letter for letter in (*variant.grid.required, "T") if letter not in values]
    if missing:
        example = " ".join(f"{letter}=8" for letter in variant.grid.required)
        raise UsageError(f"this grid needs {', '.join(missing)}: '{example} T=10,128'")
    number = math.prod(map(len, values.values()))
    if number > MAX_POINTS:
        raise UsageError(f"a grid has at most {MAX_POINTS:,} points, not {number:,}; give fewer values")
    return Grid(variant, values)


def _read_words(text: str) -> dict[str, tuple[int, ...]]:
    """Return the sizes by letter."""
    values: dict[str, tuple[int, ...]] = {}
    for word in text.split():
        key, equals, numbers = word.partition("=")
        try:
            sizes = tuple(map(parse_int, numbers.split(",")))
        except ValueError:
            raise UsageError(f"malformed grid word {word!r}; write KEY=NUMBER,NUMBER as in 'K=1,2 E=8'") from None
        if key in values:
            raise UsageError(f"grid key {key!r} is given twice")
        values[key] = sizes
    return values


def _words_of(path: str) -> str:
    """Return a TOML file of sizes, or lists of them, by letter as the text of a grid."""
    lists = {key: size if isinstance(size, list) else [size] for key, size in read_toml(path).items()}
    return " ".join(f"{key}={','.join(map(str, sizes))}" for key, sizes in lists.items())


def case_at(variant: Variant, point: Mapping[str, int]) -> Case:
    """Return the layer at a point. Raises ConfigError where its sizes cannot be built."""
    fields = variant.config.fields_by_letter
    sizes = {fields[letter]: size for letter, size in point.items() if letter in fields}
    kinds = field_types(None, variant.name)
    for name in [name for name in sizes if kinds[name] is bool]:
        if sizes[name] not in (0, 1):
            raise ConfigError(f"{name} must be 0 or 1, not {sizes[name]}")
        sizes[name] = bool(sizes[name])
    config = make_config({"attention": variant.name, "d_model": DEFAULT_D_MODEL, **sizes})
    lengths = {"batch_size": point.get("B", 1), "tgt_len": point["T"], "src_len": point.get("S", point["T"])}
    return Case(format_sizes(point), config, lengths)


def omitted(ledger: Ledger) -> dict[str, int]:
    """Return the MACs of an exact ledger that Eq. 18 and 19 omit, by name."""
    missing = ledger.select(lambda entry: entry.macs and not conventions.equations_18_19(entry))
    return missing.group(lambda entry: "router" if conventions.router(entry) else entry.kind)


@dataclass(frozen=True)
class GridCount:
    """The rows of a grid, and the points that cannot be built, each with its reason."""

    grid: Grid
    rows: Sequence[GridRow]
    left_out: Sequence[str]

    @property
    def summary(self) -> str:
        """The number of points, and of those that cannot be built where there are any."""
        left_out = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"{plural(len(self.rows), 'point')}{left_out}"


def count_grid(grid: Grid, counters: Sequence[str] = (), device: str | None = None) -> GridCount:
    """Return a row for each point that can be built. Raises UsageError where there is none."""
    buildable, left_out = [], []
    for point in grid.points():
        try:
            buildable.append((point, case_at(grid.variant, point)))
        except ConfigError as error:
            left_out.append(f"left out {format_sizes(point)}: {error}")
    if not buildable:
        raise UsageError(f"no point of the grid can be built; {left_out[0]}")
    if counters:
        for _, case in buildable:
            case.check_runs()
    rows = (_row(grid.variant, point, case, counters, device) for point, case in buildable)
    names = [format_sizes(point) for point, _ in buildable]
    return GridCount(grid, list(with_progress(rows, "row", names)), left_out)


def _row(
    variant: Variant, point: Mapping[str, int], case: Case, counters: Sequence[str], device: str | None
) -> GridRow:
    config, dense = case.config, variant.dense(case.config)
    B, T, S = (case.lengths[name] for name in ("batch_size", "tgt_len", "src_len"))

    def mha_macs(**letters: int) -> int:
        return mha.layer("", B=B, T=T, S=S, **letters).macs

    counted = count(case, counters, device=device)
    ideal = count(case.ideal, counters, device=device) if case.ideal else None
    printed = variant.printed.macs(config, T, S) if variant.printed else None
    same_width = mha_macs(d_m=config.d_model, h=1, d_h=config.d_model, g=1)
    same_inner = mha_macs(d_m=config.d_model, h=1, d_h=dense.num_heads * dense.head_dim, g=1)
    return GridRow(
        point,
        case,
        counted,
        ideal,
        printed_equation_macs=None if printed is None else B * printed,
        omitted_macs=omitted(counted.ledger),
        eq19_macs=B * mha.macs_eq19(T=T, d_m=config.d_model) if T == S else None,
        mha_same_d_model_macs=same_width,
        mha_same_inner_width_macs=same_inner,
        to_mha=Fraction(counted.ledger.macs, same_width),
        to_inner=Fraction(counted.ledger.macs, same_inner),
        ideal_to_dense=ideal and Fraction(ideal.ledger.macs, mha_macs(**dense.letters())),
    )


def table(found: GridCount, name: str = "grid") -> Table[GridRow]:
    """Return the table of a grid."""
    grid, variant, first = found.grid, found.grid.variant, found.rows[0]
    defaults = {"d_m": DEFAULT_D_MODEL, "S": "T", "B": "1"}
    fixed = [f"{letter} = {default}" for letter, default in defaults.items() if letter not in grid.values]
    if variant.printed:
        about = f"B times {variant.printed.name} as printed (S = T), what it leaves out by name, the exact count."
    elif first.ideal:
        about = f"Exact counts of both forms: {variant.forms}; the counters run the first and are checked on both."
    else:
        about = "Exact counts; its paper prints no equation."
    biased = "with biases" if getattr(first.case.config, "bias", False) else "without biases"
    return Table(
        name,
        f"{variant.config.module}: one layer" + ("" if "bias" in grid.values else f", {biased}"),
        columns(grid, first),
        found.rows,
        above=["; ".join(fixed) + "." if fixed else "Every size is given.", about],
        below=found.left_out,
        note_column="to_inner",
    )


def sentence(grids: Sequence[GridCount]) -> str:
    """Return the numbers of points, and of wrong counts."""
    tools = [tool for grid in grids for row in grid.rows for _, count in row.forms for tool in count.tools]
    return "; ".join([*(grid.summary for grid in grids), *rule_agreement(tools)]) + "."
