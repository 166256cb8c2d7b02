"""Load LLaMA, JetMoE and DeepSeek models of Hugging Face's transformers: the same tensors under our names."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headcount.models.build import build, tie_weights
from headcount.models.configs.base import AttentionConfig, ConfigError, LayerConfig, ModelConfig, as_model
from headcount.models.configs.mla import MultiHeadLatentAttentionConfig
from headcount.models.norms import RMSNorm

Shape = tuple[int, ...]


class Source(NamedTuple):
    """Where a tensor of ours comes from: their name, and how theirs differs.

    ``half``: it is the first or the second of two on top of each other, by rows. ``transposed``: they store expert
    matrices as (E, out, in). ``rows``: it is these of their ``num_rows`` rows, in this order.
    """

    name: str
    half: int | None = None
    transposed: bool = False
    rows: Tensor | None = None
    num_rows: int = 0

    def extract(self, theirs: Tensor) -> Tensor:
        """Return our tensor, a view of ``theirs``; a copy of its ``rows``."""
        if self.rows is not None:
            return theirs[self.rows]
        own = theirs if self.half is None else theirs.chunk(2, dim=-2)[self.half]
        return own.transpose(-2, -1) if self.transposed else own

    def shape(self, ours: Shape) -> Shape:
        """Return the shape in transformers, given ours."""
        theirs = list(ours)
        if self.transposed:
            theirs[-2:] = reversed(ours[-2:])
        if self.half is not None:
            theirs[-2] *= 2
        if self.rows is not None:
            theirs[0] = self.num_rows
        return tuple(theirs)


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
    "self_attn.q_proj.weight": Source("self_attention.experts.input_linear.weight", transposed=True),
    "self_attn.k_proj.weight": Source("self_attention.kv_proj.weight", half=0),
    "self_attn.v_proj.weight": Source("self_attention.kv_proj.weight", half=1),
    "self_attn.out_proj.weight": Source("self_attention.experts.output_linear.weight", transposed=True),
    "self_attn.output_bias": Source("self_attention.experts.bias"),
    "feed_forward.router.proj.weight": Source("mlp.router.layer.weight"),
    "feed_forward.gate_proj.weight": Source("mlp.input_linear.weight", half=0, transposed=True),
    "feed_forward.up_proj.weight": Source("mlp.input_linear.weight", half=1, transposed=True),
    "feed_forward.down_proj.weight": Source("mlp.output_linear.weight", transposed=True),
    "feed_forward.output_bias": Source("mlp.bias"),
}
_LAYERS = {"llama": _LLAMA_LAYER, "jetmoe": _JETMOE_LAYER, "layer": _LLAMA_LAYER}
_OUTSIDE = {
    "embedding.weight": Source("model.embed_tokens.weight"),
    "norm.weight": Source("model.norm.weight"),
    "output_proj.weight": Source("lm_head.weight"),
}


def _heads(name: str, heads: int, width: int, first: int, last: int, *, interleaved: bool = False) -> Source:
    """Return the source of rows ``first`` … ``last`` - 1 of each of ``heads`` heads of ``width`` rows.

    ``interleaved``: they turn the pairs (2i, 2i + 1), we turn (i, i + d_r/2), so the even rows come first.
    """
    rows = torch.arange(heads * width).unflatten(0, (heads, width))[:, first:last]
    if interleaved:
        rows = torch.cat((rows[:, 0::2], rows[:, 1::2]), dim=1)
    return Source(name, rows=rows.flatten(), num_rows=heads * width)


def _latent_attention(config: MultiHeadLatentAttentionConfig) -> dict[str, Source]:
    """Return the sources of an MLA layer: transformers' DeepSeek attention has one projection for both of ours.

    In each head of a projection, rows without positions come first, then those that turn, or the values.
    """
    num_heads, plain, kv_rank = config.num_heads, config.head_dim, config.kv_rank
    query, key_value = plain + config.rotary_dim, plain + config.value_dim
    stored = kv_rank + config.rotary_dim
    q_proj = "q_proj" if config.query_rank is None else "q_b_proj"
    parts = {
        "q_down_proj": Source("q_a_proj"),
        "q_norm": Source("q_a_layernorm"),
        "q_proj": _heads(q_proj, num_heads, query, 0, plain),
        "q_rotary_proj": _heads(q_proj, num_heads, query, plain, query, interleaved=True),
        "kv_down_proj": _heads("kv_a_proj_with_mqa", 1, stored, 0, kv_rank),
        "kv_norm": Source("kv_a_layernorm"),
        "k_rotary_proj": _heads("kv_a_proj_with_mqa", 1, stored, kv_rank, stored, interleaved=True),
        "k_proj": _heads("kv_b_proj", num_heads, key_value, 0, plain),
        "v_proj": _heads("kv_b_proj", num_heads, key_value, plain, key_value),
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
    # a name that they do not have is found before a tensor of theirs is looked for
    sources = {name: _source(config, name) for name in model.state_dict()}
    for name, tensor in model.state_dict().items():
        source = sources[name]
        # a tied output is in a checkpoint or not
        if name == "output_proj.weight" and model.output_proj.weight is model.embedding.weight:
            source = _OUTSIDE["embedding.weight"]
            used.add("lm_head.weight")
        used.add(source.name)
        own[name] = source.extract(_find_tensor(state, source, tuple(tensor.shape)))
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


def _find_tensor(state: Mapping[str, Tensor], source: Source, shape: Shape) -> Tensor:
    """Return the tensor of transformers. ConfigError where it is missing or not of the shape that ours needs."""
    if source.name not in state:
        raise ConfigError(f"the state dict has no {source.name}")
    tensor, wanted = state[source.name], source.shape(shape)
    if tuple(tensor.shape) != wanted:
        raise ConfigError(f"{source.name} is {tuple(tensor.shape)}, not {wanted}")
    return tensor
