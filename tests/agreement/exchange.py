"""Context and expert parallelism of a layer by torch's functional collectives, which closed forms are compared with."""

from functools import partial

import torch
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from headcount.models.attention import Attention, attend
from headcount.models.experts import ExpertLinear


def gather_keys(layer, mesh):
    """Let ``layer`` attend from this rank's tokens to those of all ranks of ``mesh``, whose keys and values it gathers.

    Rotary positions turn keys before they leave. Without a causal mask, which needs the queries' positions.
    """
    project = layer.project

    def gathered(*given):
        # latents have no values
        return tuple(Gather.apply(x, mesh) if x.numel() else torch.cat([x] * mesh.size(), 1) for x in project(*given))

    layer.project = gathered


class Gather(torch.autograd.Function):
    """Return keys or values (B, S, g, d_h) of the tokens of all ranks of a mesh.

    Heads that DTensor has divided over another mesh stay divided, and parts of their gradients stay parts.
    """

    @staticmethod
    def forward(ctx, part, mesh):
        ctx.mesh = mesh
        return _redistribute(part, mesh, Shard(1), Replicate())

    @staticmethod
    def backward(ctx, gradient):
        return _redistribute(gradient, ctx.mesh, Partial(), Shard(1)), None


def _redistribute(part, mesh, given, wanted):
    if isinstance(part, DTensor):
        own = _redistribute(part.to_local(), mesh, given, wanted)
        return DTensor.from_local(own, part.device_mesh, part.placements)
    return DTensor.from_local(part, mesh, [given]).redistribute(placements=[wanted]).to_local()


def rotate_keys(layer, mesh):
    """Let ``layer`` attend to the tokens of all ranks of ``mesh``, whose keys and values go from rank to rank.

    Ring attention (arXiv 2310.01889), without masks and dropout.
    """
    resolve, group = layer.resolve_impl, mesh.get_group()
    layer.resolve_impl = lambda query: partial(resolve(query), attend=partial(_ring_attend, group=group))


def _ring_attend(query, key, value, *, group, scale=None, **masks):
    """Return what ``attend`` does for own queries (B, T, h, d_h), over the keys (B, S, g, d_h) of each rank in turn."""
    assert not any(masks.values())
    if isinstance(query, DTensor):
        out = _ring_attend(*(part.to_local() for part in (query, key, value)), group=group, scale=scale)
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


def _to_next_rank(part, group):
    """Send ``part`` (B, …) to the next rank, and return the part of the previous rank."""
    ranks, rank = group.size(), group.rank()
    give, take = ([len(part) * (other == peer % ranks) for other in range(ranks)] for peer in (rank + 1, rank - 1))
    return functional.all_to_all_single_autograd(part.contiguous(), take, give, group)


def own_experts(layer, mesh):
    """Keep only this rank's experts of ``layer``, E / ranks consecutive ones."""
    number = layer.config.num_experts // mesh.size()
    first = mesh.get_local_rank() * number
    for projection in expert_projections(layer):
        for name, parameter in projection.named_parameters():
            setattr(projection, name, nn.Parameter(parameter.detach()[first : first + number].clone()))


def expert_projections(layer):
    """Return the projections of experts, the one back last."""
    return [module for module in layer.children() if isinstance(module, ExpertLinear)]


def shared_experts(layer, x, mesh, chosen=None):
    """Return the output for the tokens ``x`` (B, T, d_m), which all ranks have: own experts' rows, then a sum.

    ``layer``: MoA, or a mixture of feed-forward experts. ``chosen`` (B, T, K) replaces the router's experts.
    """
    number = len(expert_projections(layer)[0].weight)
    # each rank's gradient of x is a part of a sum
    x = DTensor.from_local(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()])
    gates, experts, keys = _route(layer, x, chosen)
    sequence, token, slot = torch.nonzero(experts // number == mesh.get_local_rank(), as_tuple=True)
    rows = _rows(layer, x[sequence, token], experts[sequence, token, slot] % number, sequence, keys)
    gated = rows * gates[sequence, token, slot, None]
    out = torch.zeros_like(x).index_put((sequence, token), gated, accumulate=True)
    return DTensor.from_local(out, mesh, [Partial()]).redistribute(mesh, [Replicate()]).to_local()


def sent_experts(layer, x, mesh, chosen=None):
    """Return the output for this rank's tokens ``x`` (B, T, d_m): rows go to their experts' ranks and back.

    ``layer``: MoA, whose keys and values of all ranks' tokens are gathered first, or a mixture of feed-forward
    experts. ``chosen`` (B, T, K) replaces the router's experts on all ranks alike: what is exchanged is not read then,
    as on a fake process group.
    """
    number, ranks, group = len(expert_projections(layer)[0].weight), mesh.size(), mesh.get_group()
    gates, experts, keys = _route(layer, x, chosen)
    keys = [Gather.apply(part, mesh) for part in keys]
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


def _route(layer, x, chosen):
    """Return gates and experts (B, T, K) of the tokens, and their keys and values where experts are heads."""
    routed = layer.router(x)
    keys = layer.project(x, x) if isinstance(layer, Attention) else ()
    return routed.weights, routed.indices if chosen is None else chosen, keys


def _rows(layer, x, own, sequence, keys):
    """Return the results (R, d_m) of the rows ``x`` by this rank's experts ``own``, before their gates.

    ``sequence`` (R,) is the sequence of each row, to whose single key/value head of ``keys`` a head attends.
    """
    *inward, outward = expert_projections(layer)
    own = own[:, None, None]
    parts = [projection(x[:, None, None], own) for projection in inward]
    out = attend(*parts, *(part[sequence] for part in keys)) if keys else layer.hidden(*parts)
    return outward(out, own)[:, 0, 0]
