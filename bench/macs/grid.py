"""``macs --grid``: printed equations, exact MACs and counts of one attention layer at every combination of sizes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from headcount.bench.accounts import ideal_statement
from headcount.bench.case import Case
from headcount.bench.errors import UsageError, read_toml
from headcount.bench.measure import as_records, measure
from headcount.bench.table import Column, Row, Section, Table, macs_column, params_column, plural
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
"""Limit of the number of points; all layers are built before the first row is printed."""
COMMON = ("d_m", "T", "S", "B")
OMITTED = "omitted_macs."
"""The prefix of JSON keys of the terms that an equation omits."""


@dataclass(frozen=True)
class Grid:
    """An attention variant and the values of each letter; in the rows the last letter varies fastest."""

    variant: Variant
    values: Mapping[str, tuple[int, ...]]

    def points(self) -> list[dict[str, int]]:
        """Return every combination of values as a size for each letter."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]


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


def section(grid: Grid, counters: Sequence[str], device: str | None, name: str = "grid") -> Section:
    """Return a row for each point that can be built; the others are listed below the table as left out.

    Raises UsageError where no point can be built.
    """
    buildable, left_out = [], []
    for point in grid.points():
        try:
            buildable.append((point, case_at(grid.variant, point)))
        except ConfigError as error:
            left_out.append(f"left out {format_sizes(point)}: {error}")
    if not buildable:
        raise UsageError(f"no point of the grid can be built; {left_out[0]}")
    cases = [case for _, case in buildable]
    if counters:
        for case in cases:
            case.check_runs()
    rows = (_row(grid.variant, point, case, counters, device) for point, case in buildable)
    return Section(
        replace(_layout(grid, counters, cases), name=name),
        # without counters the rows are known now, and column widths fit them
        rows if counters else list(rows),
        below=[*left_out, f"{plural(len(buildable), 'point')}, {len(left_out)} left out."],
        ideal=ideal_statement(cases),
    )


def omitted(ledger: Ledger) -> dict[str, int]:
    """Return the MACs of an exact ledger that Eq. 18 and 19 omit, by name."""
    missing = ledger.select(lambda entry: entry.macs and not conventions.equations_18_19(entry))
    return missing.group(lambda entry: "router" if conventions.router(entry) else entry.kind)


def _eq19(case: Case) -> int | None:
    """Return Eq. 19 for dense attention of the same model width; None where there are not as many queries as keys."""
    B, T, S = (case.lengths[name] for name in ("batch_size", "tgt_len", "src_len"))
    return B * mha.macs_eq19(T=T, d_m=case.config.d_model) if T == S else None


def _layout(grid: Grid, counters: Sequence[str], cases: Sequence[Case]) -> Table:
    variant, config, ideal = grid.variant, cases[0].config, cases[0].ideal
    printed, routed = variant.printed, bool(variant.config.routing_letters)
    # a counter may report twice the count
    width = max(13, len(f"{max(max(2 * case.ledger.macs, _eq19(case) or 0) for case in cases):,}"))
    macs = partial(macs_column, width=width)
    params = partial(params_column, width=max(11, len(f"{max(case.ledger.params for case in cases):,}")))
    ratio = partial(Column, kind="fixed", digits=4)

    columns = []
    for letter, sizes in grid.values.items():
        columns.append(Column(letter, letter, kind="int", width=max(4, len(f"{max(sizes):,}")), priority=0))
    if printed:
        columns.append(macs("printed_equation_macs", printed.name, priority=2))
        columns.append(macs(f"{OMITTED}values", "+ second\nT*S product", priority=3))
    if routed:
        columns.append(macs(f"{OMITTED}router", "+ router" if printed else "of which\nrouters", priority=3))
    exact = "= exact" if printed else "MACs\nas released" if ideal else "MACs\nexact"
    columns.append(macs("macs", exact, priority=0))
    columns += [macs(name, name.replace("-", "\n"), priority=3) for name in counters]
    if ideal:
        columns.append(macs("ideal_macs", "MACs\nideal", priority=0))
    columns.append(params("params", "params", priority=4))
    if routed:
        columns.append(params("active_params", "params\nactive", priority=5))
    columns.append(macs("eq19_macs", "Eq. 19\nsame d_m", priority=5))
    columns.append(ratio("to_mha", "exact / MHA\nsame d_m"))
    columns.append(ratio("to_inner", "exact / MHA\nsame inner width"))
    if ideal:
        columns.append(ratio("ideal_to_dense", "ideal / MHA\nsame h, g"))

    defaults = {"d_m": DEFAULT_D_MODEL, "S": "T", "B": "1"}
    fixed = [f"{letter} = {default}" for letter, default in defaults.items() if letter not in grid.values]
    biased = "with biases" if getattr(config, "bias", False) else "without biases"
    if printed:
        about = f"B times {printed.name} as printed (S = T), what it leaves out by name, the exact count."
    elif ideal:
        about = f"Exact counts of both forms: {variant.forms}; the counters run the first and are checked on both."
    else:
        about = "Exact counts; its paper prints no equation."
    return Table(
        "grid",
        f"{variant.config.module}: one layer" + ("" if "bias" in grid.values else f", {biased}"),
        columns,
        notes_above=["; ".join(fixed) + "." if fixed else "Every size is given.", about],
        note_column="to_inner",
    )


def _row(variant: Variant, point: dict[str, int], case: Case, counters: Sequence[str], device: str | None) -> Row:
    config, dense = case.config, variant.dense(case.config)
    B, T, S = (case.lengths[name] for name in ("batch_size", "tgt_len", "src_len"))

    def mha_macs(**letters: int) -> int:
        return mha.layer("", B=B, T=T, S=S, **letters).macs

    measured = measure(case, counters, device=device)
    exact = measured.ledger.macs
    failures = measured.disagreements(case.name)
    printed = variant.printed.macs(config, T, S) if variant.printed else None
    equation = None if printed is None else B * printed
    missing = omitted(measured.ledger)
    same_width = mha_macs(d_m=config.d_model, h=1, d_h=config.d_model, g=1)
    same_inner = mha_macs(d_m=config.d_model, h=1, d_h=dense.num_heads * dense.head_dim, g=1)
    ideal = measure(case.ideal, counters, device=device) if case.ideal else None
    if ideal:
        failures += ideal.disagreements(case.ideal.name)
    ratios = {
        "to_mha": Fraction(exact, same_width),
        "to_inner": Fraction(exact, same_inner),
        "ideal_to_dense": ideal and Fraction(ideal.ledger.macs, mha_macs(**dense.letters())),
    }
    equations = {"printed_equation_macs": equation, "eq19_macs": _eq19(case)}
    facts = {
        "point": point,
        **equations,
        "omitted_macs": missing,
        "mha_same_d_model_macs": same_width,
        "mha_same_inner_width_macs": same_inner,
        **{name: ratio and float(ratio) for name, ratio in ratios.items()},
    }
    records = as_records(None, measured, **facts)
    if ideal:
        records += as_records(None, ideal, **facts, form="ideal")
    values = {
        **point,
        **equations,
        f"{OMITTED}router": 0,
        **{f"{OMITTED}{name}": number for name, number in missing.items()},
        "macs": exact,
        "ideal_macs": ideal and ideal.ledger.macs,
        **{count.counter: count.macs for count in measured.counts},
        "params": measured.ledger.params,
        "active_params": (ideal or measured).ledger.active_params,
        **ratios,
    }
    return Row(values, notes=failures, records=records, failures=failures, case=case)
