"""Base classes of configurations: checks of fields, sizes by letter. Importable without torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, get_args

from headcount.models.configs.suggest import did_you_mean

MOST_LAYERS = 10_000
"""Upper bound of the number of layers of a model, each of which is built. No published model has a thousand."""
LENGTH_LETTERS = {"batch_size": "B", "src_len": "S", "tgt_len": "T", "seq_len": "T"}
"""Input length -> its letter in closed forms."""
FIELDS = {
    "d_m": "d_model",
    "h": "num_heads",
    "d_h": "head_dim",
    "T": "num_tokens",
    "M": "num_pooled",
    "N_pos": "num_positions",
    "d_pos": "position_width",
    "F": "d_ff",
    "V": "vocab_size",
    "h_w": "num_weight_heads",
    "encoder_kernels": "encoder_kernel_sizes",
    "decoder_kernels": "decoder_kernel_sizes",
    "P": "context_len",
    "N_dense": "num_dense_layers",
    "F_e": "expert_d_ff",
    "E_s": "num_shared_experts",
    "N_mtp": "num_predicted",
    "p": "patch_size",
    "C_in": "latent_channels",
    "C_out": "out_channels",
    "d_t": "frequency_width",
    "N_y": "num_labels",
    "N_enc": "num_encoder_layers",
    "N_dec": "num_decoder_layers",
    "G": "gate_width",
    "N": "num_layers",
    "g": "num_kv_heads",
    "d_r": "rotary_dim",
    "d_v": "value_dim",
    "d_c": "kv_rank",
    "d_q": "query_rank",
    "E": "num_experts",
    "K": "top_k",
    "D": "head_dim",
    "s": "num_shared_heads",
    "r": "top_k",
    "C": "num_classes",
    "E_ff": "ffn_num_experts",
    "K_ff": "ffn_top_k",
}
"""Field or property of each letter of closed forms, where their names differ."""


def fields_of(*letters: str) -> dict[str, str]:
    """Return the field of each letter."""
    return {letter: FIELDS.get(letter, letter) for letter in letters}


class ConfigError(ValueError):
    """A configuration that cannot be built; the message is one line and names the valid choices."""

    exit_code = 2


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise ConfigError, with the valid choices, where ``value`` is none of ``choices``."""
    choices = tuple(choices)
    if value not in choices:
        near = did_you_mean(str(value), choices)
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}{near}")


def check_range(name: str, value: int | float, least: int, most: int | None = None) -> None:
    """Raise ConfigError where ``value`` is NaN, below ``least`` or above ``most``."""
    if not value >= least:
        raise ConfigError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ConfigError(f"{name} must be at most {most:,}, not {value:,}")


def check_divides(name: str, value: int, whole_name: str, whole: int, hint: str = "") -> None:
    """Raise ConfigError, which ends with ``hint``, where ``value`` does not divide ``whole``."""
    if whole % value:
        raise ConfigError(f"{name} must divide {whole_name}, and {value} does not divide {whole}{hint}")


def check_selected(name: str, value: int, least: int, most_name: str, most: int) -> None:
    """Raise ConfigError where ``value`` experts or heads are below ``least``, or more than the ``most`` there are."""
    if not least <= value <= most:
        raise ConfigError(f"{name} must lie in {least}..{most_name} = {least}..{most}, not {value}")


class Implementation(NamedTuple):
    """One way to run a layer, on the parameters of the reference and with its results.

    ``target``: its function below headcount.models, imported only when it is selected. ``timed``: whether benchmarks
    time it by default; ``few_rows``: whether they time it by default where a call has fewer rows, K for each token,
    than experts. ``masks``: whether it supports causal and padding masks, and so decoding. ``form``: the form whose
    ledger counts its work, where that is not the configuration's form; ``gradient``: the form whose gradient it has,
    where that differs. ``package``: the package that it requires besides a CUDA device; None for an implementation
    that runs everywhere. ``one_graph``: whether torch.compile(fullgraph=True) traces it; sizes that the host reads
    break a graph. ``executes``: pairs of fields (field, other) where its work is that of a configuration whose
    ``field`` has the value of ``other``: ("top_k", "num_experts") of an implementation that runs every expert for
    every token.
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


def reference_and_fused(file: str) -> tuple[Implementation, ...]:
    """Return two implementations in ``file``: the equations as written, and by F.scaled_dot_product_attention."""
    return Implementation("reference", f"{file}:reference", timed=False), Implementation("fused", f"{file}:fused")


class Form(StrEnum):
    """Two ways to compute one function, each with a closed form: as released, and without its unused work."""

    RELEASED = "released"
    IDEAL = "ideal"


class Input(NamedTuple):
    """One argument of a forward: integers below ``below``, or features where that is None."""

    shape: tuple[int, ...]
    below: int | None = None


CONFIGS: dict[str, type["SymbolicConfig"]] = {}
"""The configuration of each file that was imported, by the file's name."""


class SymbolicConfig:
    """A configuration that gives its sizes as the letters of its closed form.

    ``variant`` is its name in every package, that of its file; ``module`` the class in the file of models/ of that
    name, None for a closed form without one; ``fields_by_letter`` maps each letter to a field or property,
    ``attention.NAME`` for one of a model's attention; ``routing_letters`` are the numbers of heads or experts to choose
    from and to use per token; ``lengths`` are the input lengths with their defaults.
    ``minimum`` holds the smallest value of numeric fields where it is not 1 (integers) or 0 (floats); ``divides`` maps
    fields to the fields that they must divide.
    """

    variant: ClassVar[str]
    module: ClassVar[str | None]
    fields_by_letter: ClassVar[Mapping[str, str]]
    routing_letters: ClassVar[tuple[str, ...]] = ()
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}
    minimum: ClassVar[Mapping[str, int]] = {}
    divides: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Register a class that has a ``module`` as the configuration of its file."""
        super().__init_subclass__()
        if "module" in vars(cls):
            cls.variant = vars(cls).get("variant", cls.__module__.rpartition(".")[2])
            CONFIGS[cls.variant] = cls

    def __post_init__(self) -> None:
        """Check each field by its type and name, and make members of enums of their texts."""
        for field in fields(self):
            value = getattr(self, field.name)
            if str in get_args(field.type):
                # annotated as an enum or the text of a member
                enum: type[StrEnum] = get_args(field.type)[0]
                check_choice(field.name, value, [member.value for member in enum])
                object.__setattr__(self, field.name, enum(value))
            elif field.name.endswith("layers") and isinstance(value, int):
                check_range(field.name, value, 1, MOST_LAYERS)
            elif field.name.endswith("dropout"):
                if not 0 <= value < 1:
                    raise ConfigError(f"{field.name} must lie in [0, 1), not {value}")
            elif field.type == tuple[int, ...]:
                check_range(f"the number of {field.name}", len(value), 1)
                check_range(field.name, min(value), 1)
            elif type(value) in (int, float):
                check_range(field.name, value, self.minimum.get(field.name, 0 if field.type is float else 1))
        if {"top_k", "num_experts"} <= {field.name for field in fields(self)}:
            check_selected("top_k", self.top_k, 1, "num_experts", self.num_experts)
        for name, whole in self.divides.items():
            check_divides(name, getattr(self, name), whole, getattr(self, whole))

    def letters(self) -> dict[str, Any]:
        """Return the keyword arguments of this variant's closed form, input lengths apart."""
        return {letter: attrgetter(name)(self) for letter, name in self.fields_by_letter.items()}

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return input lengths by letter: B sequences, S source or key tokens, T target or query tokens."""
        return {LENGTH_LETTERS[name]: lengths[name] for name in self.lengths}

    @property
    def has_module(self) -> bool:
        """Whether this can be built, not only computed."""
        return self.module is not None and getattr(self, "attention", self).module is not None


class AttentionConfig(SymbolicConfig):
    """One attention layer, in a model or alone.

    ``implementations``: how its module can be run, the reference first. ``ideal_attributes``: those of the ideal form
    that differ from those of the released one. ``rotary``: the field that holds how many elements of a query or key
    rotary positions turn, None where it takes none. ``takes_values``: whether its values may be of another sequence
    than its keys. ``no_step``: why it cannot decode step by step, empty where it can. ``steerable``: whether its module
    has a linear router whose selection can be set: ``routing_projection``. ``columns`` and ``rows``: the
    projections that tensor parallelism divides by their outputs, heads, and by their inputs; none without columns.
    ``key_value_columns``: those columns whose outputs are the num_kv_heads key/value heads.
    """

    implementations: ClassVar[tuple[Implementation, ...]] = ()
    ideal_attributes: ClassVar[Mapping[str, Any]] = {}
    rotary: ClassVar[str | None] = None
    takes_values: ClassVar[bool] = True
    no_step: ClassVar[str] = ""
    steerable: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[tuple[str, ...]] = ("out_proj",)
    key_value_columns: ClassVar[tuple[str, ...]] = ()

    d_model: int

    def __post_init__(self) -> None:
        """Check the fields; ``num_kv_heads`` is num_heads by default, and ``head_dim`` d_model / num_heads."""
        super().__post_init__()
        if hasattr(self, "num_heads") and hasattr(self, "num_kv_heads"):
            if self.num_kv_heads is None:
                object.__setattr__(self, "num_kv_heads", self.num_heads)
            check_divides("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        if getattr(self, "head_dim", 0) is None:
            hint = "; choose another num_heads or set head_dim"
            check_divides("num_heads", self.num_heads, "d_model", self.d_model, hint)
            object.__setattr__(self, "head_dim", self.d_model // self.num_heads)
        if getattr(self, "form", None) is Form.IDEAL:
            # attributes of the instance hide those of the class, which are of the released form
            vars(self).update(self.ideal_attributes)

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return the arguments of the layer's forward by name: queries (B, T, d_m) and keys (B, S, d_m)."""
        return {
            "query": Input((lengths["batch_size"], lengths["tgt_len"], self.d_model)),
            "key": Input((lengths["batch_size"], lengths["src_len"], self.d_model)),
        }

    @property
    def rotary_width(self) -> int:
        """Number of elements of a query or key that rotary positions rotate, in a variant that supports them."""
        return getattr(self, self.rotary)

    @property
    def in_decoder(self) -> "AttentionConfig":
        """The attention in the decoder of an encoder-decoder: itself, unless it would see later tokens there."""
        return self


class ModelConfig(SymbolicConfig):
    """A whole model around an attention.

    ``gated``: whether its feed-forward block is, with three matrices. ``mixture``: the experts of a feed-forward block,
    None for dense ones. ``equal_blocks``: whether the feed-forward blocks of all its layers have the same sizes.
    ``columns`` and ``rows``: of its feed-forward blocks, as those of an attention.
    """

    gated: ClassVar[bool] = False
    mixture: ClassVar[SymbolicConfig | None] = None
    equal_blocks: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[tuple[str, ...]] = ()

    attention: AttentionConfig

    def __post_init__(self) -> None:
        """Check the fields, and that attentions have the width of the model, where it has one, and read no grid."""
        super().__post_init__()
        own_width = any(field.name == "d_model" for field in fields(self))
        for layer in getattr(self, "layers", (self.attention,)) if own_width else ():
            if "T" in layer.fields_by_letter:
                raise ConfigError(f"attention {layer.variant} is of a grid of tokens, which only a transnext model has")
            if layer.d_model != self.d_model:
                raise ConfigError(f"d_model of the attention must be the model's {self.d_model}, not {layer.d_model}")

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return tokens (B, T)."""
        self.length_letters(lengths)
        return {"tokens": Input((lengths["batch_size"], lengths["seq_len"]), self.vocab_size)}


class Layers(tuple):
    """The attention of each layer; its ``repr`` writes equal neighbours once, with their number."""

    def __repr__(self) -> str:
        runs = ((config, len(list(equal))) for config, equal in groupby(self))
        return f"({', '.join(f'{times} x {config!r}' for config, times in runs)})"


class Layered(ModelConfig):
    """A model whose attention fields may differ from layer to layer: ``layers`` has one attention for each.

    ``unit``: what an attention's field may have a value for. ``derived_fields`` are fields of an attention that follow
    from the model's and are not given.
    """

    layers: tuple[AttentionConfig, ...]
    unit: ClassVar[str] = "layer"
    derived_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", Layers(self.layers))

    @classmethod
    def units(cls, values: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Return the number of layers of each unit, and the ``derived_fields`` of its attention, from the model's
        fields."""
        num_layers = values.get("num_layers", 1)
        check_range("num_layers", num_layers, 1, MOST_LAYERS)
        return [(1, {})] * num_layers

    @property
    def attention(self) -> AttentionConfig:
        """The first layer's attention; variant and width are the same in all."""
        return self.layers[0]


@dataclass(frozen=True, kw_only=True)
class CausalLanguageModelConfig(Layered):
    """A pre-norm decoder that reads tokens and gives the logits of the token after each.

    ``context_len``: tokens of the default input. ``rope_theta``: base of rotary positions. ``tied``: the output
    projection has the embedding's weight.
    """

    fields_by_letter: ClassVar[Mapping[str, str]] = fields_of("d_m", "F", "V")
    minimum: ClassVar[Mapping[str, int]] = {"rope_theta": 1}
    tied: ClassVar[bool] = False

    layers: tuple[AttentionConfig, ...]
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    context_len: int = 2048
    rope_theta: float = 10000.0

    def check_rotary(self) -> None:
        """Raise ConfigError if an attention does not support rotary positions, or if their width is odd."""
        # sorted, so that the order does not depend on what was imported first
        rotary = sorted(cls.variant for cls in AttentionConfig.__subclasses__() if cls.rotary)
        for layer in self.layers:
            check_choice("attention", layer.variant, rotary)
            if layer.rotary_width % 2:
                raise ConfigError(f"{layer.rotary} must be even for rotary positions, not {layer.rotary_width}")

    @property
    def lengths(self) -> dict[str, int]:
        """One sequence of ``context_len`` tokens."""
        return {"batch_size": 1, "seq_len": self.context_len}


@dataclass(frozen=True, kw_only=True)
class LayerConfig(ModelConfig):
    """A single ``attention`` layer, from queries (B, T, d_m) to keys (B, S, d_m); its module is the layer."""

    variant: ClassVar[str] = "layer"
    fields_by_letter: ClassVar[Mapping[str, str]] = {}

    attention: AttentionConfig

    @property
    def module(self) -> str | None:
        """The class of the layer."""
        return self.attention.module

    @property
    def lengths(self) -> Mapping[str, int]:
        """The input lengths of the layer."""
        return self.attention.lengths

    def inputs(self, lengths: Mapping[str, int]) -> dict[str, Input]:
        """Return the inputs of the layer."""
        return self.attention.inputs(lengths)


def as_model(config: AttentionConfig | ModelConfig) -> ModelConfig:
    """Return ``config``, an attention as a model of one layer."""
    return config if isinstance(config, ModelConfig) else LayerConfig(attention=config)
