"""Load LLaMA and JetMoE models of Hugging Face's transformers: the same tensors under our names."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from headcount.models.build import build, tie_weights
from headcount.models.configs.base import ConfigError, ModelConfig

Shape = tuple[int, ...]


class Source(NamedTuple):
    """Where a tensor of ours comes from: their name, and how theirs differs.

    ``half``: it is the first or the second of two on top of each other, by rows. ``transposed``: they store expert
    matrices as (E, out, in).
    """

    name: str
    half: int | None = None
    transposed: bool = False

    def extract(self, theirs: Tensor) -> Tensor:
        """Return our tensor, a view of ``theirs``."""
        own = theirs if self.half is None else theirs.chunk(2, dim=-2)[self.half]
        return own.transpose(-2, -1) if self.transposed else own

    def shape(self, ours: Shape) -> Shape:
        """Return the shape in transformers, given ours."""
        theirs = list(ours)
        if self.transposed:
            theirs[-2:] = reversed(ours[-2:])
        if self.half is not None:
            theirs[-2] *= 2
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
_LAYERS = {"llama": _LLAMA_LAYER, "jetmoe": _JETMOE_LAYER}
_OUTSIDE = {
    "embedding.weight": Source("model.embed_tokens.weight"),
    "norm.weight": Source("model.norm.weight"),
    "output_proj.weight": Source("lm_head.weight"),
}


def load_hugging_face(config: ModelConfig, state: Mapping[str, Tensor]) -> nn.Module:
    """Return the model of ``config`` with the tensors of ``state``, the state dict of a transformers
    ``LlamaForCausalLM`` or ``JetMoeForCausalLM``: of their dtype and on their device, not copied, in eval mode.

    Raises ConfigError that names the first tensor, in our model's order, that is missing or of another shape, or the
    first that the model has no place for; and for a model or an attention that transformers has no such model of.
    """
    if config.variant not in _LAYERS:
        raise ConfigError(f"no Hugging Face names for a {config.variant} model; choose from {', '.join(_LAYERS)}")
    model = build(config, device="meta")
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
    _, index, rest = name.split(".", 2)
    if rest not in _LAYERS[config.variant]:
        raise ConfigError(f"no Hugging Face name for {name}: transformers' {config.variant} has no such tensor")
    source = _LAYERS[config.variant][rest]
    return source._replace(name=f"model.layers.{index}.{source.name}")


def _find_tensor(state: Mapping[str, Tensor], source: Source, shape: Shape) -> Tensor:
    """Return the tensor of transformers. ConfigError where it is missing or not of the shape that ours needs."""
    if source.name not in state:
        raise ConfigError(f"the state dict has no {source.name}")
    tensor, wanted = state[source.name], source.shape(shape)
    if tuple(tensor.shape) != wanted:
        raise ConfigError(f"{source.name} is {tuple(tensor.shape)}, not {wanted}")
    return tensor
