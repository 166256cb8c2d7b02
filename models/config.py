"""What can be built: one frozen dataclass per attention variant and per model, with all validation.

Importable without torch. A model's fields and its attention's fields are one flat namespace: presets and
overrides name a field once and :func:`make_config` puts it wherever it belongs.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar


class ConfigError(ValueError):
    """A configuration that cannot be built; the message is one line and names the valid choices."""

    exit_code = 2


def _at_least(least: int, **values: int | float) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value}")


def _probability(**values: int | float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ConfigError(f"{name} must lie in [0, 1), not {value}")


class Lettered:
    """A configuration that gives its sizes in the field's letters, as its closed form takes them.

    ``variant`` names the file in formulas/ and models/; ``module`` the class there, None for a closed form
    without one; ``fields_by_letter`` says which field or property a letter stands for.
    """

    variant: ClassVar[str]
    module: ClassVar[str | None]
    fields_by_letter: ClassVar[Mapping[str, str]]

    def letters(self) -> dict[str, Any]:
        """The keyword arguments of this variant's closed form, input lengths apart."""
        return {letter: getattr(self, name) for letter, name in self.fields_by_letter.items()}

    @property
    def has_module(self) -> bool:
        """Whether this can be built, not only computed."""
        return self.module is not None and getattr(self, "attention", self).module is not None


@dataclass(frozen=True, kw_only=True)
class MultiHeadAttentionConfig(Lettered):
    """h heads; MHA where num_kv_heads is num_heads, GQA or MQA where it is fewer."""

    variant: ClassVar[str] = "mha"
    module: ClassVar[str | None] = "MultiHeadAttention"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "g": "num_kv_heads",
        "bias": "bias",
    }

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, num_heads=self.num_heads)
        _probability(attention_dropout=self.attention_dropout)
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if self.head_dim is None:
            if self.d_model % self.num_heads:
                raise ConfigError(
                    f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}; "
                    "choose another num_heads or set head_dim"
                )
            object.__setattr__(self, "head_dim", self.d_model // self.num_heads)
        _at_least(1, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"num_kv_heads must divide num_heads, and {self.num_kv_heads} does not divide {self.num_heads}"
            )


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentionHeadsConfig(Lettered):
    """K of E attention experts of width D per token, with one shared key and value head (arXiv 2210.05144).

    ``renormalise``: weights of Eq. 9 (default), or the plain probabilities of the released code.
    ``noisy``: Eq. 2-3's noise on the router logits in training.
    """

    variant: ClassVar[str] = "moa"
    module: ClassVar[str | None] = "MixtureOfAttentionHeads"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "E": "num_experts",
        "K": "top_k",
        "D": "head_dim",
        "bias": "bias",
        "noisy": "noisy",
    }

    d_model: int
    num_experts: int
    top_k: int
    head_dim: int
    bias: bool = False
    renormalise: bool = True
    noisy: bool = False
    attention_dropout: float = 0.0
    balance_loss_weight: float = 0.01
    z_loss_weight: float = 0.001

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, num_experts=self.num_experts, top_k=self.top_k, head_dim=self.head_dim)
        _probability(attention_dropout=self.attention_dropout)
        _at_least(0, balance_loss_weight=self.balance_loss_weight, z_loss_weight=self.z_loss_weight)
        if self.top_k > self.num_experts:
            raise ConfigError(f"top_k must lie in 1..num_experts = 1..{self.num_experts}, not {self.top_k}")


@dataclass(frozen=True, kw_only=True)
class MixtureOfAttentiveExpertsConfig(Lettered):
    """MAE (arXiv 2005.06537): h experts, each all heads but one, mixed by a gate on the mean token.

    ``gate_width``: hidden width of the two-layer tanh gate.
    """

    variant: ClassVar[str] = "mae"
    module: ClassVar[str | None] = None
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "h": "num_heads",
        "d_h": "head_dim",
        "G": "gate_width",
        "bias": "bias",
    }

    d_model: int
    num_heads: int
    gate_width: int = 256
    bias: bool = True

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, num_heads=self.num_heads, gate_width=self.gate_width)
        if self.d_model % self.num_heads:
            raise ConfigError(f"num_heads must divide d_model, and {self.num_heads} does not divide {self.d_model}")

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads


AttentionConfig = MultiHeadAttentionConfig | MixtureOfAttentionHeadsConfig | MixtureOfAttentiveExpertsConfig


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(Lettered):
    """Post-norm encoder-decoder Transformer with ReLU, sinusoidal positions and one shared embedding."""

    variant: ClassVar[str] = "encoder_decoder"
    module: ClassVar[str | None] = "EncoderDecoder"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "N_enc": "num_encoder_layers",
        "N_dec": "num_decoder_layers",
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    vocab_size: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        _at_least(1, num_encoder_layers=self.num_encoder_layers, num_decoder_layers=self.num_decoder_layers)
        _probability(dropout=self.dropout, ffn_dropout=self.ffn_dropout)

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: S source and T target tokens."""
        return {"B": lengths["batch_size"], "S": lengths["src_len"], "T": lengths["tgt_len"]}


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelConfig(Lettered):
    """Post-norm RoBERTa-style encoder: GELU, learned positions, embedding norm, tied output with a bias."""

    variant: ClassVar[str] = "masked_lm"
    module: ClassVar[str | None] = "MaskedLanguageModel"
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "N": "num_layers",
        "P": "max_positions",
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "seq_len": 128}

    attention: AttentionConfig
    d_model: int
    d_ff: int
    num_layers: int
    vocab_size: int
    max_positions: int
    dropout: float = 0.0
    ffn_dropout: float = 0.0

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        _at_least(1, num_layers=self.num_layers, max_positions=self.max_positions)
        _probability(dropout=self.dropout, ffn_dropout=self.ffn_dropout)

    def length_letters(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Input lengths in the field's letters: T tokens; two positions are reserved, as in RoBERTa."""
        if lengths["seq_len"] + 2 > self.max_positions:
            raise ConfigError(
                f"seq_len must be at most max_positions - 2 = {self.max_positions - 2}, not {lengths['seq_len']}; "
                "set max_positions for longer inputs"
            )
        return {"B": lengths["batch_size"], "T": lengths["seq_len"]}


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(Lettered):
    """Encoder-decoder with a light or dynamic convolution in place of self-attention (arXiv 1901.10430).

    ``convolution``: ``light`` or ``dynamic``; cross-attention is ``attention``. One kernel size per layer.
    """

    variant: ClassVar[str] = "convolution"
    module: ClassVar[str | None] = None
    fields_by_letter: ClassVar[Mapping[str, str]] = {
        "d_m": "d_model",
        "F": "d_ff",
        "V": "vocab_size",
        "h_w": "num_weight_heads",
        "encoder_kernels": "encoder_kernel_sizes",
        "decoder_kernels": "decoder_kernel_sizes",
        "dynamic": "dynamic",
    }
    lengths: ClassVar[Mapping[str, int]] = {"batch_size": 1, "src_len": 10, "tgt_len": 10}

    attention: AttentionConfig
    convolution: str
    d_model: int
    d_ff: int
    num_weight_heads: int
    encoder_kernel_sizes: tuple[int, ...]
    decoder_kernel_sizes: tuple[int, ...]
    vocab_size: int

    def __post_init__(self):
        _at_least(1, d_model=self.d_model, d_ff=self.d_ff, vocab_size=self.vocab_size)
        _at_least(1, num_weight_heads=self.num_weight_heads)
        for size in self.encoder_kernel_sizes + self.decoder_kernel_sizes:
            _at_least(1, kernel_sizes=size)
        if self.convolution not in ("light", "dynamic"):
            raise ConfigError(f"convolution must be one of light, dynamic, not {self.convolution!r}")

    @property
    def dynamic(self) -> bool:
        """Whether kernels are predicted from the tokens."""
        return self.convolution == "dynamic"

    length_letters = EncoderDecoderConfig.length_letters


ModelConfig = EncoderDecoderConfig | MaskedLanguageModelConfig | ConvolutionConfig

ATTENTIONS = {
    cls.variant: cls
    for cls in (MultiHeadAttentionConfig, MixtureOfAttentionHeadsConfig, MixtureOfAttentiveExpertsConfig)
}
MODELS = {cls.variant: cls for cls in (EncoderDecoderConfig, MaskedLanguageModelConfig, ConvolutionConfig)}


def field_types(model: str | None, attention: str) -> dict[str, Any]:
    """Every field of a model and its attention by name, with its type; ``attention`` itself left out."""
    classes = ([MODELS[model]] if model else []) + [ATTENTIONS[attention]]
    return {f.name: f.type for cls in classes for f in fields(cls) if f.name != "attention"}


def make_config(values: Mapping[str, Any]) -> AttentionConfig | ModelConfig:
    """A configuration from one flat mapping.

    ``attention`` names the variant (mha, moa, mae), ``model`` the model around it (encoder_decoder, masked_lm,
    convolution) or is absent for a single layer; every other key is a field of either or both.
    Raises ConfigError for an unknown or missing field and for sizes that cannot be built.
    """
    values = dict(values)
    model, attention = values.pop("model", None), values.pop("attention")
    known = field_types(model, attention)
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown field {name!r}; choose from {', '.join(sorted(known))}")
    layer = _construct(ATTENTIONS[attention], values)
    return layer if model is None else _construct(MODELS[model], {**values, "attention": layer})


def _construct(cls, values):
    required = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
    if required:
        raise ConfigError(f"{cls.__name__} needs {', '.join(required)}")
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})
