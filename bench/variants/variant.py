"""Optional capabilities of an attention variant, and the variants by name. Importable without torch.

``bench/variants/<name>.py`` holds the ``VARIANT`` of each name of the registry. A capability that is None or empty is
not supported by the variant.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

from headcount.models.configs.base import AttentionConfig
from headcount.models.configs.mha import MultiHeadAttentionConfig
from headcount.models.configs.registry import ATTENTIONS, VARIANTS

Sizes = Mapping[str, Any]
"""Integers, or arrays that broadcast against one another, by letter."""


@dataclass(frozen=True)
class Grid:
    """The letters that choose a layer of a grid, those that must be given, and those that may be 0."""

    letters: tuple[str, ...]
    required: tuple[str, ...]
    may_be_zero: tuple[str, ...] = ()


@dataclass(frozen=True)
class Printed:
    """A paper's equation of a layer: its name, and its MACs of one sequence, None where it does not apply."""

    name: str
    macs: Callable[[Any, int, int], int | None]


@dataclass(frozen=True)
class Letter:
    """A letter's range in a search.

    The search takes ``friendly`` sizes by default, described by ``statement``, and every integer of ``any_size`` on
    request.
    """

    friendly: tuple[int, ...]
    any_size: range
    statement: str
    least: int = 1


@dataclass(frozen=True)
class Search:
    """Search over sizes: the preset to change, the letters in the order of the search, the valid points.

    ``example`` is a point that is valid in every model. ``conditions`` holds what must be true of the ``coupled``
    letters together, by its name, in an attention like the given one. ``cases`` are the sizes of coupled
    letters at which the closed form is another polynomial than elsewhere. ``defaults`` are fields that a search sets
    by default, and ``remark`` is a note below its results.
    """

    preset: str
    example: Mapping[str, int]
    letters: Mapping[str, Letter]
    coupled: tuple[str, ...]
    conditions: Callable[[Sizes, AttentionConfig], dict[str, Any]]
    cases: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    remark: Callable[[AttentionConfig], str] = lambda attention: ""


def make_dense(d_model: int, heads: int, head_dim: int, kv_heads: int | None = None) -> MultiHeadAttentionConfig:
    """Return an MHA without biases, a baseline of other variants."""
    sizes = dict(d_model=d_model, num_heads=heads, head_dim=head_dim, num_kv_heads=kv_heads)
    return MultiHeadAttentionConfig(**sizes, bias=False)


def dense_of_all_heads(config: AttentionConfig) -> MultiHeadAttentionConfig:
    """Return the MHA without biases that has the heads of ``config``."""
    return make_dense(config.d_model, config.num_heads, config.head_dim, getattr(config, "num_kv_heads", None))


@dataclass(frozen=True)
class Routed:
    """Wording of routing tables for what tokens select: an expert or a head.

    ``used`` is the letter of entries that are done once for each that a token uses, ``active`` how many those are,
    ``shared`` how many every token uses in addition, ``sizes`` the sizes to print. ``released``: whether the
    released code computes the others too.
    """

    unit: str
    units: str
    shares: str
    executed: str
    used: str
    active: Callable[[Any], int]
    sizes: tuple[str, ...]
    shared: Callable[[Any], int] = lambda config: 0
    released: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One attention: ``label`` is its short name in print.

    ``dense`` returns the MHA with as many heads as are active for a token, ``baselines`` by role the dense layers that
    are timed for comparison. ``forms`` describes the two forms and
    ``ideal`` what the ideal one omits; both are empty for a single form. ``unsearched`` is the reason why there is no
    ``search``.
    """

    name: str
    label: str
    grid: Grid | None = None
    dense: Callable[[Any], MultiHeadAttentionConfig] = dense_of_all_heads
    printed: Printed | None = None
    search: Search | None = None
    unsearched: str = ""
    baselines: Callable[[Any], dict[str, MultiHeadAttentionConfig]] = lambda config: {
        "mha": variant(config.variant).dense(config)
    }
    routed: Routed | None = None
    forms: str = ""
    ideal: str = ""

    @property
    def config(self) -> type[AttentionConfig]:
        """Return the class of its configurations."""
        return ATTENTIONS[self.name]

    def fields_by_letter(self, letters: Iterable[str]) -> dict[str, str]:
        """Return the field of each of these letters."""
        return {letter: self.config.fields_by_letter[letter] for letter in letters}

    def fields(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return sizes by the names of the configuration's fields."""
        return {self.config.fields_by_letter[letter]: size for letter, size in sizes.items()}


@cache
def variant(name: str) -> Variant:
    """Return the variant called ``name``, one of the registry."""
    return import_module(f"headcount.bench.variants.{name}").VARIANT


def variants_with(capability: str) -> dict[str, Variant]:
    """Return the variants that have a ``capability``, a field of Variant, by name."""
    return {name: variant(name) for name in VARIANTS if getattr(variant(name), capability)}


def with_width(variant: Variant) -> Variant:
    """Return a variant whose search is over single layers, of which the model's width is a size too."""
    search = variant.search
    letters = {**search.letters, "d_m": Letter((), range(0), "as given")}
    return replace(variant, search=replace(search, letters=letters, example={**search.example, "d_m": 1}))


FEW = (1, 2, *range(4, 65, 4))
HEADS = Letter(FEW, range(1, 65), "1, 2 or a multiple of 4")
WIDTH = Letter(tuple(range(16, 513, 16)), range(1, 513), "a multiple of 16")
