"""Divide a layer or a language model over the ranks of a device mesh, by torch's DTensor, FSDP and collectives.

The configuration of a layer says which of its projections are divided by outputs and which by inputs; experts and
keys are exchanged by functional collectives here.
"""

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
    parallelize_module(layer, mesh, _projections(config, sequence, local=False))


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
        whole = _gathered(part.to_local(), group)
        return DTensor.from_local(whole, part.device_mesh, part.placements)
    return functional.all_gather_single_autograd(part.contiguous(), 1, group)


def own_experts(layer: Attention, mesh: DeviceMesh) -> None:
    """Keep of ``layer`` the experts of this rank, E / ranks neighbours."""
    number = layer.config.num_experts // mesh.size()
    first = mesh.get_local_rank() * number
    for projection in (layer.q_proj, layer.out_proj):
        projection.weight = nn.Parameter(projection.weight.detach()[first : first + number].clone())


def shared_experts(layer: Attention, x: Tensor, mesh: DeviceMesh, chosen: Tensor | None = None) -> Tensor:
    """Return the layer's output for the tokens ``x`` (B, T, d_m), which all ranks have: own experts' rows, then a sum.

    ``chosen`` (B, T, K) replaces the router's experts.
    """
    number = len(layer.q_proj.weight)
    # each rank's gradient of x is a part of a sum
    x = DTensor.from_local(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()])
    gates, experts = _route(layer, x, chosen)
    sequence, token, slot = torch.nonzero(experts // number == mesh.get_local_rank(), as_tuple=True)
    rows = _rows(layer, x[sequence, token], experts[sequence, token, slot] % number, sequence, *layer.project(x, x))
    gated = rows * gates[sequence, token, slot, None]
    out = torch.zeros_like(x).index_put((sequence, token), gated, accumulate=True)
    return DTensor.from_local(out, mesh, [Partial()]).redistribute(mesh, [Replicate()]).to_local()


def sent_experts(layer: Attention, x: Tensor, mesh: DeviceMesh, chosen: Tensor | None = None) -> Tensor:
    """Return the layer's output for this rank's tokens ``x`` (B, T, d_m): rows go to their experts' ranks and back.

    Keys and values of all ranks' tokens are gathered first. ``chosen`` (B, T, K) replaces the router's experts, and
    must give each rank as many rows of every other: what is exchanged is not read then, as on a fake process group.
    """
    number, ranks, group = len(layer.q_proj.weight), mesh.size(), mesh.get_group()
    gates, experts = _route(layer, x, chosen)
    keys = [functional.all_gather_single_autograd(part.contiguous(), 1, group) for part in layer.project(x, x)]
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    sequence = order // (x.shape[1] * experts.shape[2])
    give = torch.bincount(flat // number, minlength=ranks)
    take = functional.all_to_all_single(give, None, None, group)
    codes = sequence * layer.config.num_experts + flat[order]
    given, taken = give.tolist(), (take if chosen is None else give).tolist()
    received = functional.all_to_all_single(codes, taken, given, group)
    codes = codes if chosen is not None else received
    tokens = x.flatten(0, 1)[order // experts.shape[2]]
    rows = functional.all_to_all_single_autograd(tokens, taken, given, group)
    own = codes % layer.config.num_experts % number
    out = _rows(layer, rows, own, codes // layer.config.num_experts, *keys)
    back = functional.all_to_all_single_autograd(out, given, taken, group)
    unsorted = torch.empty_like(back).index_copy(0, order, back)
    return (unsorted.view(*experts.shape, -1) * gates[..., None]).sum(2)


def _route(layer: Attention, x: Tensor, chosen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return gates and experts (B, T, K) of the tokens."""
    routed = layer.router(x)
    return routed.weights, routed.indices if chosen is None else chosen


def _rows(layer: Attention, x: Tensor, own: Tensor, sequence: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the results (R, d_m) of the rows ``x`` by this rank's experts ``own``, before their gates.

    ``sequence`` (R,) is the sequence of each row, whose single key/value head it attends to.
    """
    order = torch.argsort(own, stable=True)
    sizes = torch.bincount(own, minlength=len(layer.q_proj.weight)).tolist()
    sorted_x, where = x[order], sequence[order]
    q = torch.cat([part @ weight for part, weight in zip(sorted_x.split(sizes), layer.q_proj.weight, strict=True)])
    scores = torch.bmm(key[where, :, 0], (q * q.shape[-1] ** -0.5).unsqueeze(2)).transpose(1, 2)
    out = torch.bmm(torch.softmax(scores, -1), value[where, :, 0]).squeeze(1)
    y = torch.cat([part @ weight for part, weight in zip(out.split(sizes), layer.out_proj.weight, strict=True)])
    return torch.empty_like(y).index_copy(0, order, y)
