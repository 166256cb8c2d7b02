"""Grids: one attention layer at every combination of sizes, Eq. 18 and 19 beside exact and counted."""

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from headcount.bench.accounts import ideal_statement
from headcount.bench.case import Case
from headcount.bench.errors import UsageError, read_file
from headcount.bench.measure import as_records, measure
from headcount.bench.table import Column, Row, Section, Table
from headcount.bench.variants.variant import Printed, Variant, variants_with
from headcount.formulas import conventions, mha
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import ConfigError
from headcount.models.configs.make import field_types, make_config
from headcount.models.configs.numbers import whole

DEFAULT_D_MODEL = 512


MOST = 100_000
"""Points of a grid; a layer is made for each before the first row is printed."""
COMMON = ("d_m", "T", "S", "B")
OMITTED = "omitted_macs."
"""Where JSON has what an equation leaves out, by name."""


@dataclass(frozen=True)
class Grid:
    """A variant and, for each letter, its values in the order in which they vary, the last one fastest."""

    variant: Variant
    values: Mapping[str, tuple[int, ...]]

    def points(self) -> list[dict[str, int]]:
        """Every combination."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]


def parse(text: str) -> Grid:
    """A grid from ``'K=1,2 E=8 D=64 T=10,128'`` or from a TOML file with the same keys.

    Raises UsageError with the valid keys, for a key, a value or a file that cannot be used.
    """
    values = _read_toml(Path(text)) if text.endswith(".toml") else _read_words(text)
    variants = list(variants_with("grid").values())
    letters = {letter for variant in variants for letter in variant.grid.letters} | set(COMMON)
    for key in values:
        if key not in letters:
            choices = " or ".join(", ".join(variant.grid.letters) for variant in variants)
            raise UsageError(f"unknown grid key {key!r}; choose from {choices}, with {', '.join(COMMON)}")
    own = set(values) - set(COMMON)
    # the first that has every letter: what s and r are not given for is MHA
    variant = next((variant for variant in variants if own and own <= set(variant.grid.letters)), None)
    if variant is None:
        kinds = " or of ".join(f"{variant.label} ({', '.join(variant.grid.letters)})" for variant in variants)
        raise UsageError(f"a grid is of {kinds}, with {', '.join(COMMON)} beside them")
    for key, sizes in values.items():
        least = 0 if key in variant.grid.may_be_zero else 1
        if min(sizes) < least:
            raise UsageError(f"grid values must be at least {least}, not {key}={min(sizes)}")
    missing = [letter for letter in (*variant.grid.required, "T") if letter not in values]
    if missing:
        raise UsageError(f"this grid needs {', '.join(missing)}: '{_example(variant)}'")
    number = math.prod(map(len, values.values()))
    if number > MOST:
        raise UsageError(f"a grid of {number:,} points is of more than {MOST:,}; give fewer values")
    return Grid(variant, values)


def _example(variant: Variant) -> str:
    return " ".join(f"{letter}=8" for letter in variant.grid.required) + " T=10,128"


def _read_words(text: str) -> dict[str, tuple[int, ...]]:
    values = {}
    for word in text.split():
        key, equals, numbers = word.partition("=")
        try:
            sizes = tuple(map(whole, numbers.split(",")))
        except ValueError:
            raise UsageError(f"malformed grid word {word!r}; write KEY=NUMBER,NUMBER as in 'K=1,2 E=8'") from None
        if key in values:
            raise UsageError(f"grid key {key!r} is given twice")
        values[key] = sizes
    if not values:
        raise UsageError("an empty grid; write one as in 'K=1,2 E=8 D=64 T=10,128'")
    return values


def _read_toml(path: Path) -> dict[str, tuple[int, ...]]:
    text = read_file(path)
    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    values = {}
    for key, given in data.items():
        sizes = given if isinstance(given, list) else [given]
        if not sizes or not all(type(size) is int for size in sizes):
            raise UsageError(f"{path}: {key} takes a whole number or a list of them, not {given!r}")
        values[key] = tuple(sizes)
    return values


def case_at(variant: Variant, point: Mapping[str, int]) -> Case:
    """The layer at a point; ConfigError where its sizes cannot be built."""
    fields = variant.config.fields_by_letter
    sizes = {fields[letter]: size for letter, size in point.items() if letter in fields}
    kinds = field_types(None, variant.name)
    for name in [name for name in sizes if kinds[name] is bool]:
        if sizes[name] not in (0, 1):
            raise ConfigError(f"{name} must be 0 or 1, not {sizes[name]}")
        sizes[name] = bool(sizes[name])
    config = make_config({"attention": variant.name, "d_model": DEFAULT_D_MODEL, **sizes})
    lengths = {"batch_size": point.get("B", 1), "tgt_len": point["T"], "src_len": point.get("S", point["T"])}
    return Case(_name(point), config, lengths)


def section(grid: Grid, counters: Sequence[str], device: str | None) -> Section:
    """A row for each point that can be built; the others are listed below the table as left out.

    Raises UsageError where no point can be built.
    """
    buildable, left_out = [], []
    for point in grid.points():
        try:
            buildable.append((point, case_at(grid.variant, point)))
        except ConfigError as error:
            left_out.append(f"left out {_name(point)}: {error}")
    if not buildable:
        raise UsageError(f"no point of the grid can be built; {left_out[0]}")
    for _, case in buildable if counters else ():
        case.check_runs()
    rows = (_row(grid.variant, point, case, counters, device) for point, case in buildable)
    return Section(
        _layout(grid, counters, [case for _, case in buildable]),
        # what needs no counting is known at once, and its columns are measured
        rows if counters else list(rows),
        below=[*left_out, f"{len(buildable)} points, {len(left_out)} left out."],
        ideal=ideal_statement(case for _, case in buildable),
    )


def _name(point: Mapping[str, int]) -> str:
    return " ".join(f"{letter}={size}" for letter, size in point.items())


def omitted(ledger: Ledger) -> dict[str, int]:
    """What Eq. 18 and 19 leave out of an exact ledger, by name."""
    missing = ledger.select(lambda entry: entry.macs and not conventions.equations_18_19(entry))
    return missing.group(lambda entry: "router" if conventions.router(entry) else entry.kind)


def _layout(grid: Grid, counters: Sequence[str], cases: Sequence[Case]) -> Table:
    case = cases[0]
    printed, routed = grid.variant.printed, bool(grid.variant.config.routing_letters)
    exact = "= exact" if printed else "MACs\nas released" if case.ideal else "MACs\nexact"
    # a reading may be twice the count
    width = max(13, len(f"{max(max(2 * one.ledger.macs, _eq19(one) or 0) for one in cases):,}"))
    params = max(11, len(f"{max(one.ledger.params for one in cases):,}"))
    columns = [
        *(
            Column(letter, letter, kind="int", width=max(4, len(f"{max(sizes):,}")), priority=0)
            for letter, sizes in grid.values.items()
        ),
        *_equation_columns(printed, routed, width),
        Column("macs", exact, kind="int", width=width, of="MACs", priority=0),
        *(Column(name, name.replace("-", "\n"), kind="int", width=width, of="MACs", priority=3) for name in counters),
        *([Column("ideal_macs", "MACs\nideal", kind="int", width=width, of="MACs", priority=0)] if case.ideal else []),
        Column("params", "params", kind="int", width=params, of="params", priority=4),
        *(
            [Column("active_params", "params\nactive", kind="int", width=params, of="params", priority=5)]
            if routed
            else []
        ),
        Column("eq19_macs", "Eq. 19\nsame d_m", kind="int", width=width, of="MACs", priority=5),
        Column("to_mha", "exact / MHA\nsame d_m", kind="fixed", digits=4),
        Column("to_inner", "exact / MHA\nsame inner width", kind="fixed", digits=4),
        *([Column("ideal_to_dense", "ideal / MHA\nsame h, g", kind="fixed", digits=4)] if case.ideal else []),
    ]
    fixed = [] if "d_m" in grid.values else [f"d_m = {DEFAULT_D_MODEL}"]
    fixed += [f"{letter} = {default}" for letter, default in (("S", "T"), ("B", "1")) if letter not in grid.values]
    biased = ", with biases" if getattr(case.config, "bias", False) else ", without biases"
    biased = "" if "bias" in grid.values else biased
    return Table(
        "grid",
        f"{grid.variant.config.module}: one layer{biased}",
        columns,
        notes_above=[
            "; ".join(fixed) + "." if fixed else "Every size is given.",
            _about(grid.variant, case),
        ],
        note_column="to_inner",
    )


def _about(variant: Variant, case: Case) -> str:
    if variant.printed:
        return f"B times {variant.printed.name} as printed (S = T), what it leaves out by name, the exact count."
    if case.ideal:
        return f"Exact counts of both forms: {variant.forms}; the counters read the first, and are checked on both."
    return "Exact counts; its paper prints no equation."


def _equation_columns(printed: Printed | None, routed: bool, width: int) -> list[Column]:
    if printed is None:
        return (
            [Column(f"{OMITTED}router", "of which\nrouters", kind="int", width=width, of="MACs", priority=3)]
            if routed
            else []
        )
    return [
        Column("printed_equation_macs", printed.name, kind="int", width=width, of="MACs", priority=2),
        Column(f"{OMITTED}values", "+ second\nT*S product", kind="int", width=width, of="MACs", priority=3),
        *([Column(f"{OMITTED}router", "+ router", kind="int", width=width, of="MACs", priority=3)] if routed else []),
    ]


def _eq19(case: Case) -> int | None:
    """Dense attention of the same model width, as Eq. 19 has it: of as many queries as keys."""
    B, T, S = (case.lengths[name] for name in ("batch_size", "tgt_len", "src_len"))
    return B * mha.macs_eq19(T=T, d_m=case.config.d_model) if T == S else None


def _row(variant: Variant, point: dict[str, int], case: Case, counters: Sequence[str], device: str | None) -> Row:
    config, dense = case.config, variant.dense(case.config)
    measured = measure(case, counters, device=device)
    B, T, S = (case.lengths[name] for name in ("batch_size", "tgt_len", "src_len"))
    printed = variant.printed.macs(config, T, S) if variant.printed else None
    equation = None if printed is None else B * printed
    missing = omitted(measured.ledger)
    failures = measured.disagreements(case.name)
    exact = measured.ledger.macs
    if equation is not None and equation + sum(missing.values()) != exact:
        failures.append(f"{case.name}: {variant.printed.name} and what it leaves out are not the exact count")
    active, ideal, ideal_to_dense = measured.ledger.active_params, None, None
    if case.ideal:
        ideal = measure(case.ideal, counters, device=device)
        failures += ideal.disagreements(case.ideal.name)
        active = ideal.ledger.active_params
        ideal_to_dense = Fraction(ideal.ledger.macs, mha.layer("", B=B, T=T, S=S, **dense.letters()).macs)
    widths = config.d_model, dense.num_heads * dense.head_dim
    same_width, same_inner = (mha.layer("", B=B, T=T, S=S, d_m=config.d_model, h=1, d_h=w, g=1).macs for w in widths)
    eq19 = _eq19(case)
    ratios = {"to_mha": Fraction(exact, same_width), "to_inner": Fraction(exact, same_inner)}
    ratios["ideal_to_dense"] = ideal_to_dense
    values = {
        **point,
        "printed_equation_macs": equation,
        f"{OMITTED}router": 0,
        **{f"{OMITTED}{name}": number for name, number in missing.items()},
        "macs": exact,
        "ideal_macs": ideal and ideal.ledger.macs,
        **{count.counter: count.macs for count in measured.counts},
        "params": measured.ledger.params,
        "active_params": active,
        "eq19_macs": eq19,
        **ratios,
    }
    facts = {"point": point, "printed_equation_macs": equation, "omitted_macs": missing, "eq19_macs": eq19}
    facts |= {"mha_same_d_model_macs": same_width, "mha_same_inner_width_macs": same_inner}
    facts |= {name: ratio and float(ratio) for name, ratio in ratios.items()}
    records = as_records(None, measured, **facts)
    if ideal:
        facts |= {"form": "ideal"}
        records += as_records(None, ideal, **facts)
    return Row(values, notes=failures, records=records, failures=failures, case=case)
