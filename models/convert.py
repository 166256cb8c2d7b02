"""Convert a trained dense model to mixture-of-head attention with the same tensors (arXiv 2410.11842, section 4.4).

The paper's recipe: the first heads are shared, the others are scored by the lengths of their queries, and gates are 0
and 1, so that with every routed head selected the model is the dense one. With fewer it is to be trained on.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from headcount.models.build import build, tie_weights
from headcount.models.configs.base import ConfigError, ModelConfig
from headcount.models.configs.convert import Heads, convert_config
from headcount.models.configs.moh import Router
from headcount.models.mha import MultiHeadAttention

Scores = Mapping[str, Tensor | Sequence[int | float]]


def convert(
    dense: ModelConfig | nn.Module,
    *,
    shared: Heads,
    routed: Heads,
    router: str = Router.QUERY_NORM,
    scores: Scores | None = None,
) -> ModelConfig | nn.Module:
    """Return ``dense``, a model with multi-head attention or its configuration, with MoH instead.

    ``shared`` heads of each layer are used by every token and ``routed`` of the others are selected: one number for
    all layers or one for each. Router ``query_norm`` has no parameters; the matrices of a ``linear`` one are zeros,
    which makes every gate 1, so that with s + r = h either is the dense model. The parameters are those of ``dense``,
    not copies: use ``copy.deepcopy`` first to preserve it. Heads with the highest ``scores`` (see
    :func:`reorder_heads`) come first and are shared. Raises ConfigError for more heads than there are, and for
    ``scores`` of a configuration; TypeError for a module that :func:`build` has not made.
    """
    if isinstance(dense, ModelConfig):
        if scores is not None:
            raise ConfigError("scores order the heads of a model; a configuration has none")
        return convert_config(dense, shared=shared, routed=routed, router=router)
    if not isinstance(config := getattr(dense, "config", None), ModelConfig):
        raise TypeError(f"a model of build, or its configuration, is expected, not {type(dense).__name__}")
    config = convert_config(config, shared=shared, routed=routed, router=router)
    state = dict((dense if scores is None else reorder_heads(dense, scores)).state_dict())
    like = next(dense.parameters())
    model = build(config, device="meta")
    for name, parameter in model.state_dict().items():
        if name not in state:
            # a router's tensor
            state[name] = torch.zeros(parameter.shape, dtype=like.dtype, device=like.device)
    return _load_state(model, state).train(dense.training)


def reorder_heads(dense: nn.Module, scores: Scores) -> nn.Module:
    """Return the same function with the heads of every layer reordered: the highest scores first.

    ``scores``: h numbers for each multi-head attention, by its module path. Heads that share a key/value head stay
    together, sorted by descending score, and groups are sorted by descending mean score. Rows of the query, key and
    value projections move, and columns of the output projection. Raises ConfigError for scores that are missing,
    or not h.
    """
    state = dict(dense.state_dict())
    attentions = ((path, part) for path, part in dense.named_modules() if isinstance(part, MultiHeadAttention))
    for path, layer in attentions:
        groups, heads = _orders(path, layer, scores)
        for name, order in (("q_proj", heads), ("k_proj", groups), ("v_proj", groups)):
            for kind in ("weight", "bias"):
                key = f"{path}.{name}.{kind}"
                if key in state:
                    state[key] = state[key].unflatten(0, (len(order), -1))[order].flatten(0, 1)
        key = f"{path}.out_proj.weight"
        state[key] = state[key].unflatten(1, (len(heads), -1))[:, heads].flatten(1)
    return _load_state(build(dense.config, device="meta"), state).train(dense.training)


def _orders(path: str, layer: MultiHeadAttention, scores: Scores) -> tuple[Tensor, Tensor]:
    """Return the order of the key/value heads, and that of the heads."""
    if path not in scores:
        raise ConfigError(f"scores has none for {path}")
    own = torch.as_tensor(scores[path], dtype=torch.float64, device=layer.q_proj.weight.device)
    h, g = layer.config.num_heads, layer.config.num_kv_heads
    if own.shape != (h,):
        raise ConfigError(f"scores has {tuple(own.shape)} numbers for {path}, not one for each of {h} heads")
    own = own.view(g, -1)
    groups = own.mean(dim=1).argsort(descending=True, stable=True)
    within = own.argsort(dim=1, descending=True, stable=True)
    return groups, (groups[:, None] * (h // g) + within[groups]).flatten()


def _load_state(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    model.load_state_dict(state, assign=True)
    tie_weights(model)
    return model
