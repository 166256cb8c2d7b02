"""Load LLaMA, JetMoE and DeepSeek models of Hugging Face's transformers: the same tensors under our names."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headcount.models.build import build, tie_weights
from headcount.models.configs.base import AttentionConfig, ConfigError, LayerConfig, ModelConfig, as_model
from headcount.models.configs.mla import MultiHeadLatentAttentionConfig
from headcount.models.norms import RMSNorm


class Source(NamedTuple):
    """Source of a tensor: its name in the checkpoint, and the view or copy of it."""

    name: str
    extract: Callable[[Tensor], Tensor] = lambda theirs: theirs


def _half(index: int) -> Callable[[Tensor], Tensor]:
    """Return a function that selects the first or the second of two stacked matrices."""
    return lambda theirs: theirs.chunk(2, dim=-2)[index]


def _transposed(theirs: Tensor) -> Tensor:
    """Return expert matrices (E, out, in) as (E, in, out)."""
    return theirs.transpose(-2, -1)


_NORMS = {
    "self_attn_norm.weight": Source("input_layernorm.weight"),
    "feed_forward_norm.weight": Source("post_attention_layernorm.weight"),
}
_LLAMA_LAYER = {
    **_NORMS,
    **{
        f"self_attn.{ours}.{kind}": Source(f"self_attn.{theirs}.{kind}")
        for kind in ("weight", "bias")
        for ours, theirs in (("q_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj"), ("out_proj", "o_proj"))
    },
    **{f"feed_forward.{name}.weight": Source(f"mlp.{name}.weight") for name in ("gate_proj", "up_proj", "down_proj")},
}
_JETMOE_LAYER = {
    **_NORMS,
    "self_attn.router.proj.weight": Source("self_attention.experts.router.layer.weight"),
    "self_attn.q_proj.weight": Source("self_attention.experts.input_linear.weight", _transposed),
    "self_attn.k_proj.weight": Source("self_attention.kv_proj.weight", _half(0)),
    "self_attn.v_proj.weight": Source("self_attention.kv_proj.weight", _half(1)),
    "self_attn.out_proj.weight": Source("self_attention.experts.output_linear.weight", _transposed),
    "self_attn.output_bias": Source("self_attention.experts.bias"),
    "feed_forward.router.proj.weight": Source("mlp.router.layer.weight"),
    "feed_forward.gate_proj.weight": Source("mlp.input_linear.weight", lambda theirs: _transposed(_half(0)(theirs))),
    "feed_forward.up_proj.weight": Source("mlp.input_linear.weight", lambda theirs: _transposed(_half(1)(theirs))),
    "feed_forward.down_proj.weight": Source("mlp.output_linear.weight", _transposed),
    "feed_forward.output_bias": Source("mlp.bias"),
}
_LAYERS = {"llama": _LLAMA_LAYER, "jetmoe": _JETMOE_LAYER, "layer": _LLAMA_LAYER}
_OUTSIDE = {
    "embedding.weight": Source("model.embed_tokens.weight"),
    "norm.weight": Source("model.norm.weight"),
    "output_proj.weight": Source("lm_head.weight"),
}


def _heads(name: str, heads: int, first: int, last: int | None, *, interleaved: bool = False) -> Source:
    """Return the source of rows ``first`` … ``last`` - 1 of each of ``heads`` heads, all rows from ``first`` for None.

    ``interleaved``: they turn the pairs (2i, 2i + 1), we turn (i, i + d_r/2), so the even rows come first.
    """

    def extract(theirs: Tensor) -> Tensor:
        rows = theirs.unflatten(0, (heads, -1))[:, first:last]
        if interleaved:
            rows = torch.cat((rows[:, 0::2], rows[:, 1::2]), dim=1)
        return rows.flatten(0, 1)

    return Source(name, extract)


def _latent_attention(config: MultiHeadLatentAttentionConfig) -> dict[str, Source]:
    """Return the sources of an MLA layer: transformers' DeepSeek attention has one projection for both of ours.

    In each head of a projection, rows without positions come first, then those that turn, or the values.
    """
    num_heads, plain, kv_rank = config.num_heads, config.head_dim, config.kv_rank
    q_proj = "q_proj" if config.query_rank is None else "q_b_proj"
    parts = {
        "q_down_proj": Source("q_a_proj"),
        "q_norm": Source("q_a_layernorm"),
        "q_proj": _heads(q_proj, num_heads, 0, plain),
        "q_rotary_proj": _heads(q_proj, num_heads, plain, None, interleaved=True),
        "kv_down_proj": _heads("kv_a_proj_with_mqa", 1, 0, kv_rank),
        "kv_norm": Source("kv_a_layernorm"),
        "k_rotary_proj": _heads("kv_a_proj_with_mqa", 1, kv_rank, None, interleaved=True),
        "k_proj": _heads("kv_b_proj", num_heads, 0, plain),
        "v_proj": _heads("kv_b_proj", num_heads, plain, None),
        "out_proj": Source("o_proj"),
    }
    return {
        f"self_attn.{ours}.{kind}": source._replace(name=f"self_attn.{source.name}.{kind}")
        for kind in ("weight", "bias")
        for ours, source in parts.items()
    }


_ATTENTIONS = {(model, "mla"): _latent_attention for model in ("llama", "layer")}
"""Sources of an attention's tensors by model and attention, where they depend on its sizes."""


def load_hugging_face(config: ModelConfig | AttentionConfig, state: Mapping[str, Tensor]) -> nn.Module:
    """Return the model of ``config`` with the tensors of ``state``, the state dict of a transformers
    ``LlamaForCausalLM``, ``JetMoeForCausalLM`` or, with MLA in every layer and no mixture, ``DeepseekV2ForCausalLM`` or
    ``DeepseekV3ForCausalLM``; for one attention layer of MHA or MLA, of their ``LlamaAttention`` or
    ``DeepseekV2Attention``. It has the dtype and device of ``state`` and is in eval mode. Tensors are not copied,
    except the projections of MLA, whose rows are in another order there.

    Rotary positions are those of ``config``: scaling such as YaRN is not in a state dict, and is not applied.
    Raises ConfigError that names the first tensor, in our model's order, that is missing or of another shape, or the
    first that the model has no place for; and for a model or an attention that transformers has no such model of.
    """
    config = as_model(config)
    if config.variant not in _LAYERS:
        raise ConfigError(f"no Hugging Face names for a {config.variant} model; choose from {', '.join(_LAYERS)}")
    model = build(config, device="meta")
    if (config.variant, config.attention.variant) in _ATTENTIONS:
        for norm in (module for module in model.modules() if isinstance(module, RMSNorm)):
            # rms_norm_eps of DeepSeek's models
            norm.eps = 1e-6
    own, used = {}, set()
    # raise for an unknown name before any tensor is read
    sources = {name: _source(config, name) for name in model.state_dict()}
    for name, tensor in model.state_dict().items():
        source = sources[name]
        # a checkpoint may lack the tied output
        if name == "output_proj.weight" and model.output_proj.weight is model.embedding.weight:
            source = _OUTSIDE["embedding.weight"]
            used.add("lm_head.weight")
        used.add(source.name)
        own[name] = _find_tensor(state, name, source, tensor.shape)
    for name in state:
        if name not in used and not name.endswith("rotary_emb.inv_freq"):
            raise ConfigError(f"the model has no place for {name}")
    model.load_state_dict(own, assign=True)
    tie_weights(model)
    return model


def _source(config: ModelConfig, name: str) -> Source:
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    alone = isinstance(config, LayerConfig)
    index, rest = ("0", f"self_attn.{name}") if alone else name.split(".", 2)[1:]
    attention = config.attention if alone else config.layers[int(index)]
    layer = _LAYERS[config.variant]
    if sources := _ATTENTIONS.get((config.variant, attention.variant)):
        layer = layer | sources(attention)
    if rest not in layer:
        raise ConfigError(f"no Hugging Face name for {name}: transformers' {config.variant} has no such tensor")
    theirs = layer[rest].name
    return layer[rest]._replace(name=theirs.removeprefix("self_attn.") if alone else f"model.layers.{index}.{theirs}")


def _find_tensor(state: Mapping[str, Tensor], name: str, source: Source, shape: torch.Size) -> Tensor:
    """Return our tensor ``name``. ConfigError where theirs is missing, or of a shape that gives no such tensor."""
    if source.name not in state:
        raise ConfigError(f"the state dict has no {source.name}")
    theirs = state[source.name]
    wrong = f"{source.name} is {tuple(theirs.shape)}, which gives no {name} of {tuple(shape)}"
    try:
        own = source.extract(theirs)
    except (IndexError, RuntimeError):
        raise ConfigError(wrong) from None
    if own.shape != shape:
        raise ConfigError(wrong)
    return own
