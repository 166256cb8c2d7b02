"""What every configuration shares: the error, the checks, sizes by letter. Importable without torch."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from headcount.models.configs.nearest import meant


class ConfigError(ValueError):
    """A configuration that cannot be built; the message is one line and names the valid choices."""

    exit_code = 2


def at_least(least: int, **values: int | float) -> None:
    """ConfigError naming the first of ``values`` below ``least``."""
    for name, value in values.items():
        # written so that a NaN fails too
        if not value >= least:
            raise ConfigError(f"{name} must be at least {least}, not {value}")


MOST_LAYERS = 10_000
"""Of a model, which is built of every one of them; no model has a thousand."""


def listed(**layers: int) -> None:
    """ConfigError naming the first of ``layers`` that is below 1, or of more than can be built one by one."""
    at_least(1, **layers)
    for name, number in layers.items():
        if number > MOST_LAYERS:
            raise ConfigError(f"{name} must be at most {MOST_LAYERS:,}, not {number:,}")


def probability(**values: int | float) -> None:
    """ConfigError naming the first of ``values`` outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ConfigError(f"{name} must lie in [0, 1), not {value}")


def one_of(choices: tuple[str, ...], **values: str) -> None:
    """ConfigError naming the first of ``values`` that is none of ``choices``."""
    for name, value in values.items():
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}{meant(str(value), choices)}")


def same_width(d_model: int, *layers: "Lettered") -> None:
    """ConfigError where an attention layer is of another width than its model, or of a grid instead of a sequence."""
    for layer in layers:
        if "T" in layer.fields_by_letter:
            raise ConfigError(f"attention {layer.variant} is of a grid of tokens, which only a transnext model has")
        if layer.d_model != d_model:
            raise ConfigError(f"d_model of the attention must be the model's {d_model}, not {layer.d_model}")


def takes_rotary(layer: "AttentionConfig") -> None:
    """ConfigError, with those that do, where an attention takes no rotary positions."""
    # in an order that does not depend on what was imported first
    one_of(
        tuple(sorted(cls.variant for cls in AttentionConfig.__subclasses__() if cls.rotary)), attention=layer.variant
    )


def named(config: Any, **kinds: type[StrEnum]) -> None:
    """Make members of fields that were given as texts; ConfigError with the choices for one that is none."""
    for field, kind in kinds.items():
        value = getattr(config, field)
        one_of(tuple(member.value for member in kind), **{field: value})
        object.__setattr__(config, field, kind(value))


class Arm(NamedTuple):
    """One way to run a layer, on the parameters of the reference and with its results.

    ``target`` is its function below headcount.models, imported only when it is selected. ``timed``: whether a
    benchmark takes it unless it is asked for others; ``few_rows``: whether it does so where a call has few tokens.
    ``masks``: whether it takes causal and padding masks, and so decodes. ``form``: the form whose ledger says what it
    needs, where that is not the configuration's own; ``gradient``: the form whose gradient it has, likewise.
    ``package``: what it cannot run without besides a CUDA device, None for an arm that runs everywhere.
    ``one_graph``: whether torch.compile(fullgraph=True) traces it; sizes that the host reads break a graph.
    ``executes``: where it does more than it needs, the fields with whose other value it does as much: ("top_k",
    "num_experts") of an arm that runs every expert for every token.
    """

    name: str
    target: str
    timed: bool = True
    masks: bool = True
    form: str | None = None
    gradient: str | None = None
    package: str | None = None
    few_rows: bool = False
    one_graph: bool = True
    executes: tuple[tuple[str, str], ...] = ()


class Form(StrEnum):
    """Two ways to compute one function, each with a closed form: as released, and without what that does in vain."""

    RELEASED = "released"
    IDEAL = "ideal"


class ByForm:
    """A class attribute that depends on the configuration's ``form``; the class itself answers for the first."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def __get__(self, config: Any, owner: type) -> Any:
        return next(iter(self.values.values())) if config is None else self.values[config.form]


class Input(NamedTuple):
    """One argument of a forward: whole numbers below ``below``, or features where that is None."""

    shape: tuple[int, ...]
    below: int | None = None


class Lettered:
    """A configuration that gives its sizes in the field's letters, as its closed form takes them.

    ``variant`` is its name, in every room; ``file`` that of its file in formulas/ and models/, another one where a
    form has a file of its own; ``module`` the class there, None for a closed form without one; ``fields_by_letter``
    says which field or property a letter stands for; ``routing_letters`` are those that say how many heads or experts
    there are to choose from, and how many a token uses; ``lengths`` are the input lengths with their defaults.
    """

    variant: ClassVar[str]
    module: ClassVar[str | None]
    fields_by_letter: ClassVar[Mapping[str, str]]
    routing_letters: ClassVar[tuple[str, ...]] = ()
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}

    @property
    def file(self) -> str:
        """The file of its closed form and of its module."""
        return self.variant

    def letters(self) -> dict[str, Any]:
        """The keyword arguments of this variant's closed form, input lengths apart."""
        return {letter: getattr(self, name) for letter, name in self.fields_by_letter.items()}

    @property
    def has_module(self) -> bool:
        """Whether this can be built, not only computed."""
        return self.module is not None and getattr(self, "attention", self).module is not None


class AttentionConfig(Lettered):
    """One attention layer, in a model or by itself.

    ``arms``: how its module can be run, the reference first. ``rotary``: the field that holds
    how many elements of a query or key rotary positions turn, None where it takes none. ``takes_values``: whether its
    values may be of another sequence than its keys. ``no_step``: why it cannot decode one token after another by
    itself, empty where it can.
    """

    arms: ClassVar[tuple[Arm, ...]] = ()
    rotary: ClassVar[str | None] = None
    takes_values: ClassVar[bool] = True
    no_step: ClassVar[str] = ""

    d_model: int

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """The arguments of the layer's forward by name: queries (B, T, d_m) and keys (B, S, d_m)."""
        return {
            "query": Input((lengths["batch_size"], lengths["tgt_len"], self.d_model)),
            "key": Input((lengths["batch_size"], lengths["src_len"], self.d_model)),
        }

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: T query and S key tokens."""
        return {"B": lengths["batch_size"], "T": lengths["tgt_len"], "S": lengths["src_len"]}

    @property
    def rotary_width(self) -> int:
        """Elements of a query or key that rotary positions turn; of a variant that takes them."""
        return getattr(self, self.rotary)

    @property
    def in_decoder(self) -> "AttentionConfig":
        """What it is in the decoder of an encoder-decoder: itself, unless it must not see what is not made yet."""
        return self

    @property
    def steerable(self) -> bool:
        """Whether its module has a linear router that can be told which tokens go where: ``routing_projection``."""
        return False


class ModelConfig(Lettered):
    """A whole model around an attention. ``gated``: whether its feed-forward block is, with three matrices."""

    gated: ClassVar[bool] = False

    attention: AttentionConfig
