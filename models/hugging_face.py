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


_OUTSIDE = {
    "embedding": Source("model.embed_tokens"),
    "norm": Source("model.norm"),
    "output_proj": Source("lm_head"),
}
_NORMS = {"self_attn_norm": Source("input_layernorm"), "feed_forward_norm": Source("post_attention_layernorm")}
_LLAMA_LAYER = {
    **_NORMS,
    **{f"self_attn.{name}": Source(f"self_attn.{name}") for name in ("q_proj", "k_proj", "v_proj")},
    "self_attn.out_proj": Source("self_attn.o_proj"),
    **{f"feed_forward.{name}": Source(f"mlp.{name}") for name in ("gate_proj", "up_proj", "down_proj")},
}
_JETMOE_LAYER = {
    **_NORMS,
    "self_attn.router.proj": Source("self_attention.experts.router.layer"),
    "self_attn.q_proj": Source("self_attention.experts.input_linear", _transposed),
    "self_attn.k_proj": Source("self_attention.kv_proj", _half(0)),
    "self_attn.v_proj": Source("self_attention.kv_proj", _half(1)),
    "self_attn.out_proj": Source("self_attention.experts.output_linear", _transposed),
    "self_attn.output_bias": Source("self_attention.experts.bias"),
    "feed_forward.router.proj": Source("mlp.router.layer"),
    "feed_forward.gate_proj": Source("mlp.input_linear", lambda theirs: _transposed(_half(0)(theirs))),
    "feed_forward.up_proj": Source("mlp.input_linear", lambda theirs: _transposed(_half(1)(theirs))),
    "feed_forward.down_proj": Source("mlp.output_linear", _transposed),
    "feed_forward.output_bias": Source("mlp.bias"),
}
_LAYERS = {"llama": _LLAMA_LAYER, "jetmoe": _JETMOE_LAYER, "layer": _LLAMA_LAYER}
"""Sources by model, of modules (both names without ``.weight`` or ``.bias``) or of single tensors."""


def _heads(name: str, heads: int, first: int, last: int | None, *, interleaved: bool = False) -> Source:
    """Return the source of rows ``first`` … ``last`` - 1 of each of ``heads`` heads, all rows from ``first`` for None.

    ``interleaved``: they turn the pairs (2i, 2i + 1), we turn (i, i + d_r/2), so the even rows come first.
    """

    def extract(theirs: Tensor) -> Tensor:
        rows = theirs.unflatten(0, (heads, -1))[:, first:last]
        # a copy of a single head's rows too
        return torch.cat((rows[:, 0::2], rows[:, 1::2]) if interleaved else (rows,), dim=1).flatten(0, 1)

    return Source(f"self_attn.{name}", extract)


def _latent_attention(config: MultiHeadLatentAttentionConfig) -> dict[str, Source]:
    """Return the sources of an MLA layer: transformers' DeepSeek attention has one projection for both of ours.

    In each head of a projection, rows without positions come first, then those that turn, or the values.
    """
    num_heads, plain, kv_rank = config.num_heads, config.head_dim, config.kv_rank
    q_proj = "q_proj" if config.query_rank is None else "q_b_proj"
    return {
        "self_attn.q_down_proj": Source("self_attn.q_a_proj"),
        "self_attn.q_norm": Source("self_attn.q_a_layernorm"),
        "self_attn.q_proj": _heads(q_proj, num_heads, 0, plain),
        "self_attn.q_rotary_proj": _heads(q_proj, num_heads, plain, None, interleaved=True),
        "self_attn.kv_down_proj": _heads("kv_a_proj_with_mqa", 1, 0, kv_rank),
        "self_attn.kv_norm": Source("self_attn.kv_a_layernorm"),
        "self_attn.k_rotary_proj": _heads("kv_a_proj_with_mqa", 1, kv_rank, None, interleaved=True),
        "self_attn.k_proj": _heads("kv_b_proj", num_heads, 0, plain),
        "self_attn.v_proj": _heads("kv_b_proj", num_heads, plain, None),
    }


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
    if config.attention.variant == "mla":
        for norm in (module for module in model.modules() if isinstance(module, RMSNorm)):
            # rms_norm_eps of DeepSeek's models
            norm.eps = 1e-6
    # raise for an unknown name before any tensor is read
    sources = {name: _source(config, name) for name in model.state_dict()}
    used = {source.name for source in sources.values()}
    if getattr(config, "tied", False):
        # a checkpoint may lack the tied output
        sources["output_proj.weight"] = sources["embedding.weight"]
    own = {name: _find_tensor(state, name, sources[name], like.shape) for name, like in model.state_dict().items()}
    for name in state:
        if name not in used and not name.endswith("rotary_emb.inv_freq"):
            raise ConfigError(f"the model has no place for {name}")
    model.load_state_dict(own, assign=True)
    tie_weights(model)
    return model


def _source(config: ModelConfig, name: str) -> Source:
    """Return the source of our tensor ``name``. ConfigError where transformers' model has no such tensor."""
    module, _, kind = name.rpartition(".")
    if module in _OUTSIDE:
        return Source(f"{_OUTSIDE[module].name}.{kind}")
    alone = isinstance(config, LayerConfig)
    index, rest = ("0", f"self_attn.{name}") if alone else name.split(".", 2)[1:]
    attention = config.attention if alone else config.layers[int(index)]
    layer = _LAYERS[config.variant]
    if layer is _LLAMA_LAYER and isinstance(attention, MultiHeadLatentAttentionConfig):
        layer = layer | _latent_attention(attention)
    module, _, kind = rest.rpartition(".")
    found = layer.get(rest) or layer.get(module)
    if found is None:
        raise ConfigError(f"no Hugging Face name for {name}: transformers' {config.variant} has no such tensor")
    theirs = found.name if rest in layer else f"{found.name}.{kind}"
    return found._replace(name=theirs.removeprefix("self_attn.") if alone else f"model.layers.{index}.{theirs}")


def _find_tensor(state: Mapping[str, Tensor], name: str, source: Source, shape: torch.Size) -> Tensor:
    """Return our tensor ``name``. ConfigError where theirs is missing, or of a shape that gives no such tensor."""
    if source.name not in state:
        raise ConfigError(f"the state dict has no {source.name}")
    theirs = state[source.name]
    try:
        own = source.extract(theirs)
    except (IndexError, RuntimeError):
        own = None
    if own is None or own.shape != shape:
        raise ConfigError(f"{source.name} is {tuple(theirs.shape)}, which gives no {name} of {tuple(shape)}")
    return own
