"""Divide a layer or a language model over the ranks of a device mesh, by torch's DTensor, FSDP and collectives.

The configuration of a layer says which of its projections are divided by outputs and which by inputs; experts and
keys are exchanged by functional collectives here.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from headcount.models.attention import Attention
from headcount.models.configs.base import AttentionConfig, ConfigError
from headcount.models.configs.llama import LlamaConfig
from headcount.models.experts import ExpertLinear
from headcount.models.head_router import HeadRouter
from headcount.models.kernels.selection import Selectable
from headcount.models.llama import Llama
from headcount.models.rotary import rotary_table

TOKENS = Shard(1)
"""Placement of (B, T, d_m) whose tokens are divided."""


def divide_heads(layer: Attention, mesh: DeviceMesh, sequence: bool = False) -> None:
    """Divide the heads of ``layer`` over the one-dimensional ``mesh``; ``sequence``: its input and output by tokens.

    Run it inside ``implicit_replication()``, which lets whole gates multiply divided heads. Raises ConfigError for a
    layer that has no heads of its own to divide.
    """
    config = layer.config
    if not config.columns:
        raise ConfigError(f"the heads of {config.variant} cannot be divided")
    inputs = PrepareModuleInput(
        input_layouts=(TOKENS if sequence else Replicate(),), desired_input_layouts=(Replicate(),)
    )
    parallelize_module(layer, mesh, inputs)
    try:
        parallelize_module(layer, mesh, _projections(config, sequence, local=False))
    except NotImplementedError as error:
        raise ConfigError(f"the heads of {config.variant} cannot be divided: {error}") from None
    for part in layer.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if not isinstance(parameter, DTensor):
                # FSDP takes no plain parameter whose gradient is a DTensor
                whole = DTensor.from_local(parameter.detach(), mesh, [Replicate()])
                part.register_parameter(name, nn.Parameter(whole, parameter.requires_grad))
    router = getattr(layer, "router", None)
    if isinstance(router, HeadRouter):
        router.weigh_all = _with_whole_gradient(router.weigh_all)


def _with_whole_gradient(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return ``function`` with a whole gradient of its result on each rank.

    DTensor divides the tokens of a gradient of gates that is large, and then moves the gradient of all queries too.
    """

    def run(*args: Tensor) -> Tensor:
        out = function(*args)
        return out.redistribute(placements=[Replicate()]) if isinstance(out, DTensor) else out

    return run


def _projections(config: AttentionConfig | LlamaConfig, sequence: bool, *, local: bool) -> dict:
    """Return how DTensor divides the projections; ``local``: what runs between them sees a rank's part only."""
    inward = {name: ColwiseParallel(use_local_output=local) for name in config.columns}
    outward = {name: RowwiseParallel(output_layouts=TOKENS if sequence else Replicate()) for name in config.rows}
    return inward | outward


def divide_model(model: "Llama | Stage", mesh: DeviceMesh, sequence: bool = False) -> None:
    """Divide heads, feed-forward widths and vocabulary over ``mesh``; ``sequence``: norms and residuals by tokens.

    Run it inside ``implicit_replication()``. Raises ConfigError for mixtures and for layers without heads of their own.
    """
    if model.config.mixture:
        raise ConfigError("experts of feed-forward blocks are not divided here; a dense model is")
    between = TOKENS if sequence else Replicate()
    for layer in model.layers:
        divide_heads(layer.self_attn, mesh, sequence)
        inputs = PrepareModuleInput(input_layouts=(between, None), desired_input_layouts=(Replicate(), None))
        parallelize_module(layer.feed_forward, mesh, inputs)
        parallelize_module(layer.feed_forward, mesh, _projections(model.config, sequence, local=True))
        if sequence:
            parallelize_module(
                layer, mesh, {"self_attn_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
            )
    whole = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "output_proj": ColwiseParallel(input_layouts=between, use_local_output=True),
    }
    whole |= {"norm": SequenceParallel()} if sequence else {}
    parallelize_module(model, mesh, {name: style for name, style in whole.items() if getattr(model, name) is not None})


def divide_weights(model: "Llama | Stage", mesh: DeviceMesh, keep: bool = False) -> None:
    """Divide the weights of each layer, and of the rest, over ``mesh``: FSDP, which gathers them for each use.

    ``keep``: gathered weights of a layer stay for the backward pass. FSDP takes no meta tensors: build the model under
    FakeTensorMode, and call this outside it.
    """
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=not keep)
    fully_shard(model, mesh=mesh)


class Stage(nn.Module):
    """Layers ``start`` to ``stop`` - 1 of a model: after its embedding in the first pipeline stage, before its logits
    in the last; ``tokens`` is the length of a sequence."""

    def __init__(self, model: Llama, start: int, stop: int, tokens: int) -> None:
        super().__init__()
        self.config, self.tokens = model.config, tokens
        self.layers = model.layers[start:stop]
        last = stop == len(model.layers)
        self.embedding = None if start else model.embedding
        self.norm, self.output_proj = (model.norm, model.output_proj) if last else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next stage gets, or logits, for tokens (B, T) or for (B, T, d_m) of the stage before."""
        x = x if self.embedding is None else self.embedding(x)
        config = self.config
        rotary = rotary_table(
            self.tokens, config.attention.rotary_width, config.rope_theta, device=x.device, dtype=x.dtype
        )
        for layer in self.layers:
            x = layer(x, rotary)
        return x if self.norm is None else self.output_proj(self.norm(x))


def gather_keys(layer: Attention, mesh: DeviceMesh) -> None:
    """Let ``layer`` attend from this rank's tokens to those of all ranks of ``mesh``, whose keys and values it gathers.

    Rotary positions turn keys before they leave. Without a causal mask, which needs the queries' positions.
    """
    project, group = layer.project, mesh.get_group()

    def gathered(*args, **kwargs) -> tuple[Tensor, ...]:
        return tuple(_gathered(part, group) for part in project(*args, **kwargs))

    layer.project = gathered


def _gathered(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return keys or values (B, S, g, d_h) of all ranks' tokens; heads that DTensor has divided stay divided."""
    if isinstance(part, DTensor):
        # divided heads read whole latents: each rank has a part of their gradients, which is not summed here
        parts = {"grad_placements": [Partial()]} if part.placements[0].is_replicate() else {}
        whole = _gathered(part.to_local(**parts), group)
        return DTensor.from_local(whole, part.device_mesh, part.placements, **parts)
    if not part.numel():
        # latents have no values
        return part.repeat_interleave(group.size(), 1)
    return functional.all_gather_single_autograd(part.contiguous(), 1, group)


def rotate_keys(layer: Attention, mesh: DeviceMesh) -> None:
    """Let ``layer`` attend to the tokens of all ranks of ``mesh``, whose keys and values go from rank to rank.

    Ring attention (arXiv 2310.01889); as :func:`gather_keys`, and without a padding mask too.
    """
    resolve, group = layer.resolve_impl, mesh.get_group()

    def resolved(query: Tensor) -> Callable:
        return partial(resolve(query), attend=partial(_ring_attend, group=group))

    layer.resolve_impl = resolved


def _ring_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    group: dist.ProcessGroup,
    causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return what ``attend`` does for own queries (B, T, h, d_h), over the keys (B, S, g, d_h) of each rank in turn."""
    if causal or key_padding_mask is not None or dropout:
        raise ConfigError("keys that go around a ring are attended to without masks and dropout")
    if isinstance(query, DTensor):
        parts = (part.to_local() for part in (query, key, value))
        out = _ring_attend(*parts, group=group, scale=scale)
        return DTensor.from_local(out, query.device_mesh, query.placements)
    scale = query.shape[3] ** -0.5 if scale is None else scale
    q = (query * scale).unflatten(2, (key.shape[2], -1)).transpose(1, 2).flatten(2, 3)
    outs, sums = [], []
    for step in range(group.size()):
        if step:
            key, value = _to_next_rank(key, group), _to_next_rank(value, group)
        scores = torch.matmul(q, key.permute(0, 2, 3, 1))
        outs.append(torch.matmul(torch.softmax(scores, -1), value.transpose(1, 2)))
        sums.append(torch.logsumexp(scores, -1, keepdim=True))
    # each rank's part by its share of the exponentials
    out = (torch.stack(outs) * torch.softmax(torch.stack(sums), 0)).sum(0)
    return out.unflatten(2, (query.shape[1], -1)).transpose(1, 2).flatten(2, 3)


def _to_next_rank(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Send ``part`` (B, …) to the next rank, and return the part of the previous rank."""
    ranks, rank = group.size(), group.rank()
    give, take = (
        [len(part) if other == peer % ranks else 0 for other in range(ranks)] for peer in (rank + 1, rank - 1)
    )
    return functional.all_to_all_single_autograd(part.contiguous(), take, give, group)


def own_experts(layer: Selectable, mesh: DeviceMesh) -> None:
    """Keep only this rank's experts of ``layer``, E / ranks consecutive ones."""
    number = layer.config.num_experts // mesh.size()
    first = mesh.get_local_rank() * number
    for projection in _expert_projections(layer):
        for name, parameter in projection.named_parameters():
            setattr(projection, name, nn.Parameter(parameter.detach()[first : first + number].clone()))


def _expert_projections(layer: Selectable) -> list[ExpertLinear]:
    """Return the projections of experts, the one back last."""
    return [module for module in layer.children() if isinstance(module, ExpertLinear)]


def shared_experts(layer: Selectable, x: Tensor, mesh: DeviceMesh, chosen: Tensor | None = None) -> Tensor:
    """Return the output for the tokens ``x`` (B, T, d_m), which all ranks have: own experts' rows, then a sum.

    ``layer``: MoA, or a mixture of feed-forward experts. ``chosen`` (B, T, K) replaces the router's experts.
    """
    number = len(_expert_projections(layer)[0].weight)
    # each rank's gradient of x is a part of a sum
    x = DTensor.from_local(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()])
    gates, experts = _route(layer, x, chosen)
    sequence, token, slot = torch.nonzero(experts // number == mesh.get_local_rank(), as_tuple=True)
    own = experts[sequence, token, slot] % number
    rows = _rows(layer, x[sequence, token], own, sequence, _keys(layer, x))
    gated = rows * gates[sequence, token, slot, None]
    out = torch.zeros_like(x).index_put((sequence, token), gated, accumulate=True)
    return DTensor.from_local(out, mesh, [Partial()]).redistribute(mesh, [Replicate()]).to_local()


def sent_experts(layer: Selectable, x: Tensor, mesh: DeviceMesh, chosen: Tensor | None = None) -> Tensor:
    """Return the output for this rank's tokens ``x`` (B, T, d_m): rows go to their experts' ranks and back.

    ``layer``: MoA, whose keys and values of all ranks' tokens are gathered first, or a mixture of feed-forward
    experts. ``chosen`` (B, T, K) replaces the router's experts on all ranks alike: what is exchanged is not read then,
    as on a fake process group.
    """
    number, ranks, group = len(_expert_projections(layer)[0].weight), mesh.size(), mesh.get_group()
    gates, experts = _route(layer, x, chosen)
    keys = [functional.all_gather_single_autograd(part.contiguous(), 1, group) for part in _keys(layer, x)]
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    sequence = order // (x.shape[1] * experts.shape[2])
    give = torch.bincount(flat // number, minlength=ranks)
    take = functional.all_to_all_single(give, None, None, group)
    codes = sequence * layer.config.num_experts + flat[order]
    given, own = give.tolist(), mesh.get_local_rank()
    taken = take.tolist() if chosen is None else [given[own]] * ranks
    received = functional.all_to_all_single(codes, taken, given, group)
    codes = received if chosen is None else codes.split(given)[own].repeat(ranks)
    tokens = x.flatten(0, 1)[order // experts.shape[2]]
    rows = functional.all_to_all_single_autograd(tokens, taken, given, group)
    out = _rows(layer, rows, codes % layer.config.num_experts % number, codes // layer.config.num_experts, keys)
    back = functional.all_to_all_single_autograd(out, given, taken, group)
    unsorted = torch.empty_like(back).index_copy(0, order, back)
    return (unsorted.view(*experts.shape, -1) * gates[..., None]).sum(2)


def _route(layer: Selectable, x: Tensor, chosen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return gates and experts (B, T, K) of the tokens."""
    routed = layer.router(x)
    return routed.weights, routed.indices if chosen is None else chosen


def _keys(layer: Selectable, x: Tensor) -> tuple[Tensor, ...]:
    """Return keys and values of the tokens where experts are heads; nothing else."""
    return layer.project(x, x) if isinstance(layer, Attention) else ()


def _rows(layer: Selectable, x: Tensor, own: Tensor, sequence: Tensor, keys: Sequence[Tensor]) -> Tensor:
    """Return the results (R, d_m) of the rows ``x`` by this rank's experts ``own``, before their gates.

    ``sequence`` (R,) is the sequence of each row, to whose single key/value head of ``keys`` a head attends.
    """
    *inward, outward = _expert_projections(layer)
    order = torch.argsort(own, stable=True)
    sizes = torch.bincount(own, minlength=len(outward.weight)).tolist()
    parts = [_by_expert(projection, x[order], sizes) for projection in inward]
    out = _attended(*parts, *(part[sequence[order], :, 0] for part in keys)) if keys else layer.hidden(*parts)
    y = _by_expert(outward, out, sizes)
    return torch.empty_like(y).index_copy(0, order, y)


def _by_expert(projection: ExpertLinear, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the products of sorted rows: the first ``sizes[0]`` by expert 0, and so on."""
    products = [part @ weight for part, weight in zip(x.split(sizes), projection.weight, strict=True)]
    if projection.bias is not None:
        products = [part + bias for part, bias in zip(products, projection.bias, strict=True)]
    return torch.cat(products)


def _attended(q: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the results (R, D) of queries (R, D), each over its own keys and values (R, S, D)."""
    scores = torch.bmm(key, (q * q.shape[-1] ** -0.5).unsqueeze(2)).transpose(1, 2)
    return torch.bmm(torch.softmax(scores, -1), value).squeeze(1)
