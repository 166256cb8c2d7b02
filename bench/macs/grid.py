"""Grids: one attention layer at every combination of sizes, Eq. 18 and 19 beside exact and counted."""

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from headcount.bench.case import ideal_form
from headcount.bench.errors import UsageError
from headcount.bench.measure import as_records, measure
from headcount.bench.render import Row, Section
from headcount.bench.table import Column, Table
from headcount.formulas import conventions, mha, moa
from headcount.formulas.ledger import Ledger
from headcount.models.configs.base import ConfigError, Lettered
from headcount.models.configs.make import make_config
from headcount.models.configs.registry import ATTENTIONS

LENGTHS = {"B": "batch_size", "T": "tgt_len", "S": "src_len"}
DEFAULT_D_MODEL = 512


@dataclass(frozen=True)
class Variant:
    """An attention that grids know: the letters that choose it, and its printed equation.

    ``equation`` gives the printed cost of one sequence, None where the paper's form does not apply; None for a
    paper without one. ``may_be_zero`` are letters that may be 0. ``label`` is how a message names the grid.
    """

    name: str
    letters: tuple[str, ...]
    required: tuple[str, ...]
    label: str
    equation_name: str = ""
    equation: Callable[[Any, int, int], int | None] | None = None
    may_be_zero: tuple[str, ...] = ()


def _eq18(config, T: int, S: int) -> int | None:
    return moa.macs_eq18(T=T, K=config.top_k, D=config.head_dim, d_m=config.d_model) if T == S else None


def _eq19(config, T: int, S: int) -> int | None:
    plain = config.num_heads * config.head_dim == config.d_model and config.num_kv_heads == config.num_heads
    return mha.macs_eq19(T=T, d_m=config.d_model) if T == S and plain else None


VARIANTS = (
    Variant("moa", ("K", "E", "D"), ("K", "E", "D"), "MoA", "Eq. 18", _eq18),
    Variant("mha", ("h", "d_h", "g"), ("h",), "MHA", "Eq. 19", _eq19),
    Variant("moh", ("h", "s", "r", "d_h", "g"), ("h", "s", "r"), "MoH", may_be_zero=("s", "r")),
)
COMMON = ("d_m", "T", "S", "B")


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
    letters = {letter for variant in VARIANTS for letter in variant.letters} | set(COMMON)
    for key in values:
        if key not in letters:
            choices = " or ".join(", ".join(variant.letters) for variant in VARIANTS)
            raise UsageError(f"unknown grid key {key!r}; choose from {choices}, with {', '.join(COMMON)}")
    own = set(values) - set(COMMON)
    # the first that has every letter: what s and r are not given for is MHA
    variant = next((variant for variant in VARIANTS if own and own <= set(variant.letters)), None)
    if variant is None:
        kinds = " or of ".join(f"{variant.label} ({', '.join(variant.letters)})" for variant in VARIANTS)
        raise UsageError(f"a grid is of {kinds}, with {', '.join(COMMON)} beside them")
    for key, sizes in values.items():
        least = 0 if key in variant.may_be_zero else 1
        if min(sizes) < least:
            raise UsageError(f"grid values must be at least {least}, not {key}={min(sizes)}")
    missing = [letter for letter in (*variant.required, "T") if letter not in values]
    if missing:
        raise UsageError(f"this grid needs {', '.join(missing)}: '{_example(variant)}'")
    return Grid(variant, values)


def _example(variant: Variant) -> str:
    return " ".join(f"{letter}=8" for letter in variant.required) + " T=10,128"


def _read_words(text: str) -> dict[str, tuple[int, ...]]:
    values = {}
    for word in text.split():
        key, equals, numbers = word.partition("=")
        try:
            sizes = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            raise UsageError(f"malformed grid word {word!r}; write KEY=NUMBER,NUMBER as in 'K=1,2 E=8'") from None
        if key in values:
            raise UsageError(f"grid key {key!r} is given twice")
        values[key] = sizes
    if not values:
        raise UsageError(f"an empty grid; write one as in '{_example(VARIANTS[0])}'")
    return values


def _read_toml(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    values = {}
    for key, given in data.items():
        sizes = given if isinstance(given, list) else [given]
        if not sizes or not all(type(size) is int for size in sizes):
            raise UsageError(f"{path}: {key} takes a whole number or a list of them, not {given!r}")
        values[key] = tuple(sizes)
    return values


def config_at(variant: Variant, point: Mapping[str, int]) -> Lettered:
    """The layer at a point; ConfigError where its sizes cannot be built."""
    fields = ATTENTIONS[variant.name].fields_by_letter
    sizes = {fields[letter]: size for letter, size in point.items() if letter in fields}
    return make_config({"attention": variant.name, "d_model": DEFAULT_D_MODEL, **sizes})


def section(grid: Grid, counters: Sequence[str], device: str | None) -> Section:
    """A row for each point that can be built; the others are listed below the table as left out.

    Raises UsageError where no point can be built.
    """
    buildable, left_out = [], []
    for point in grid.points():
        try:
            buildable.append((point, config_at(grid.variant, point)))
        except ConfigError as error:
            left_out.append(f"left out {_name(point)}: {error}")
    if not buildable:
        raise UsageError(f"no point of the grid can be built; {left_out[0]}")
    return Section(
        _layout(grid, counters, [config for _, config in buildable]),
        (_row(grid.variant, point, config, counters, device) for point, config in buildable),
        below=[*left_out, f"{len(buildable)} points, {len(left_out)} left out."],
    )


def _name(point: Mapping[str, int]) -> str:
    return " ".join(f"{letter}={size}" for letter, size in point.items())


def omitted(ledger: Ledger) -> dict[str, int]:
    """What Eq. 18 and 19 leave out of an exact ledger, by name."""
    missing = ledger.select(lambda entry: entry.macs and not conventions.equations_18_19(entry))
    return missing.group(lambda entry: "router" if conventions.router(entry) else entry.kind)


def _layout(grid: Grid, counters: Sequence[str], configs: Sequence[Lettered]) -> Table:
    routed, printed = grid.variant.name != "mha", grid.variant.equation is not None
    columns = [
        *(Column(letter, letter, kind="int", width=4) for letter in grid.values),
        *_equation_columns(grid.variant, routed),
        Column("macs", "= exact" if printed else "MACs\nas released", kind="int", width=13),
        *(Column(name, name.replace("-", "\n"), kind="int", width=13) for name in counters),
        *([] if printed else [Column("ideal_macs", "MACs\nideal", kind="int", width=13)]),
        Column("params", "params", kind="int", width=11),
        *([Column("active_params", "params\nactive", kind="int", width=11)] if routed else []),
        Column("eq19", "Eq. 19\nsame d_m", kind="int", width=13),
        Column("to_mha", "exact / MHA\nsame d_m", kind="fixed", digits=4),
        Column("to_inner", "exact / MHA\nsame inner width", kind="fixed", digits=4),
        *([] if printed else [Column("ideal_to_dense", "ideal / MHA\nsame h, g", kind="fixed", digits=4)]),
    ]
    fixed = [] if "d_m" in grid.values else [f"d_m = {DEFAULT_D_MODEL}"]
    fixed += [f"{letter} = {default}" for letter, default in (("S", "T"), ("B", "1")) if letter not in grid.values]
    biased = "with" if getattr(configs[0], "bias", False) else "without"
    return Table(
        "grid",
        f"{ATTENTIONS[grid.variant.name].module}: one layer, {biased} biases",
        columns,
        notes_above=[
            "; ".join(fixed) + "." if fixed else "Every size is given.",
            f"B times {grid.variant.equation_name} as printed (S = T), what it leaves out by name, the exact count."
            if printed
            else "Exact counts of both forms: every head computed, and no head computed for a token that does not use "
            "it; the counters read the first, and are checked on both.",
        ],
        note_column="to_inner",
    )


def _equation_columns(variant: Variant, routed: bool) -> list[Column]:
    if variant.equation is None:
        return [Column("router", "of which\nrouters", kind="int", width=11)]
    return [
        Column("equation", variant.equation_name, kind="int", width=13),
        Column("values", "+ second\nT*S product", kind="int", width=13),
        *([Column("router", "+ router", kind="int", width=11)] if routed else []),
    ]


def _row(variant: Variant, point: dict[str, int], config, counters: Sequence[str], device: str | None) -> Row:
    lengths = {"batch_size": point.get("B", 1), "tgt_len": point["T"], "src_len": point.get("S", point["T"])}
    measured = measure(config, lengths, counters, device=device, label=_name(point))
    B, T, S = lengths["batch_size"], lengths["tgt_len"], lengths["src_len"]
    printed = variant.equation(config, T, S) if variant.equation else None
    equation = None if printed is None else B * printed
    missing = omitted(measured.ledger)
    failures = measured.disagreements(_name(point))
    exact = measured.ledger.macs
    if equation is not None and equation + sum(missing.values()) != exact:
        failures.append(f"{_name(point)}: {variant.equation_name} and what it leaves out are not the exact count")
    active, ideal, ideal_to_dense = measured.ledger.active_params, None, None
    if (ideal_config := ideal_form(config)) is not None:
        ideal = measure(ideal_config, lengths, counters, device=device, label=f"{_name(point)} ideal")
        failures += ideal.disagreements(f"{_name(point)} ideal")
        active = ideal.ledger.active_params
        same_heads = {letter: config.letters()[letter] for letter in ("d_m", "h", "d_h", "g")}
        ideal_to_dense = Fraction(ideal.ledger.macs, mha.layer("", B=B, T=T, S=S, **same_heads).macs)
    same_width, same_inner = (_dense(config, width, B, T, S) for width in _widths(config))
    eq19 = B * mha.macs_eq19(T=T, d_m=config.d_model) if T == S else None
    values = {
        **point,
        "equation": equation,
        "router": 0,
        **missing,
        "macs": exact,
        "ideal_macs": ideal and ideal.ledger.macs,
        **{count.counter: count.macs for count in measured.counts},
        "params": measured.ledger.params,
        "active_params": active,
        "eq19": eq19,
        "to_mha": Fraction(exact, same_width),
        "to_inner": Fraction(exact, same_inner),
        "ideal_to_dense": ideal_to_dense,
    }
    facts = {"point": point, "printed_equation_macs": equation, "omitted_macs": missing, "eq19_macs": eq19}
    facts |= {"mha_same_d_model_macs": same_width, "mha_same_inner_width_macs": same_inner}
    records = as_records(None, measured, **facts)
    if ideal:
        facts |= {"form": "ideal"}
        records += as_records(None, ideal, **facts)
    return Row(values, notes=failures, records=records, failures=failures)


def _widths(config) -> tuple[int, int]:
    heads = config.num_heads if hasattr(config, "num_heads") else config.top_k
    return config.d_model, heads * config.head_dim


def _dense(config, inner: int, B: int, T: int, S: int) -> int:
    return mha.layer("", B=B, T=T, S=S, d_m=config.d_model, h=1, d_h=inner, g=1).macs
