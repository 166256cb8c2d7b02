"""Divide a layer or a language model over the ranks of a device mesh, by torch's DTensor and FSDP.

The configuration of a layer says which of its projections are divided by outputs and which by inputs.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch.nn.functional as F
from torch import Tensor, autograd, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from headcount.models.attention import Attention
from headcount.models.configs.base import AttentionConfig, ConfigError, check_divides
from headcount.models.configs.llama import LlamaConfig
from headcount.models.head_router import HeadRouter
from headcount.models.llama import Llama
from headcount.models.rotary import rotary_table

TOKENS = Shard(1)
"""Placement of (B, T, d_m) whose tokens are divided."""


class RepeatedColumns(ParallelStyle):
    """Divide the outputs of a linear layer over the first dimension of ``grid``, and repeat them over the second.

    ``grid`` has the ranks of the mesh that other projections are divided over. A weight's gradient is a part of a sum
    over the ranks that repeat it.
    """

    def __init__(self, grid: DeviceMesh) -> None:
        super().__init__()
        self.grid = grid

    def _apply(self, module: nn.Linear, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in module.named_parameters():
            own = distribute_tensor(parameter, self.grid, [Shard(0), Replicate()])
            module.register_parameter(name, nn.Parameter(own, parameter.requires_grad))

        def forward(x: DTensor) -> DTensor:
            weight = module.weight.to_local(grad_placements=[Shard(0), Partial()])
            bias = None if module.bias is None else module.bias.to_local(grad_placements=[Shard(0), Partial()])
            y = F.linear(x.to_local(grad_placements=[Partial()]), weight, bias)
            return DTensor.from_local(y, device_mesh, [Shard(y.ndim - 1)], run_check=False)

        module.forward = forward
        return module


class PartOfGradient(autograd.Function):
    """Return a tensor whose gradient, which every rank has whole, is one of the parts that the ranks sum.

    DTensor of torch 2.11 would sum each of the other parts where it is added to a whole gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: DTensor) -> DTensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> DTensor:
        mesh = gradient.device_mesh
        return DTensor.from_local(gradient.full_tensor() / mesh.size(), mesh, [Partial()])


def divide_heads(
    layer: Attention, mesh: DeviceMesh, sequence: bool = False, grids: dict[int, DeviceMesh] | None = None
) -> None:
    """Divide the heads of ``layer`` over the one-dimensional ``mesh``; ``sequence``: its input and output by tokens.

    Of fewer key/value heads than ranks each is on several neighbouring ones. ``grids``: the ranks by head, and by
    number among those of a head, by number of heads; layers of a model share them. Run the layer inside
    ``implicit_replication()``, which lets whole gates multiply divided heads. Raises ConfigError for a layer that has
    no heads of its own to divide, and for heads that the ranks do not divide.
    """
    config, ranks = layer.config, mesh.size()
    if not config.columns:
        raise ConfigError(f"the heads of {config.variant} cannot be divided")
    check_divides("the number of ranks", ranks, "num_heads", config.num_heads)
    kv_heads = getattr(config, "num_kv_heads", config.num_heads)
    if kv_heads < ranks:
        check_divides("num_kv_heads", kv_heads, "the number of ranks", ranks)
    else:
        check_divides("the number of ranks", ranks, "num_kv_heads", kv_heads)
    inputs = PrepareModuleInput(
        input_layouts=(TOKENS if sequence else Replicate(),), desired_input_layouts=(Replicate(),)
    )
    parallelize_module(layer, mesh, inputs)
    styles = _projections(config, sequence, local=False)
    if kv_heads < ranks:
        grids = {} if grids is None else grids
        if kv_heads not in grids:
            grids[kv_heads] = mesh._unflatten(0, (kv_heads, ranks // kv_heads), ("heads", *mesh.mesh_dim_names))
        styles |= dict.fromkeys(config.key_value_columns, RepeatedColumns(grids[kv_heads]))
    try:
        parallelize_module(layer, mesh, styles)
    except NotImplementedError as error:
        # torch divides linear layers and embeddings only
        raise ConfigError(f"the heads of {config.variant} cannot be divided: {error}") from None
    for part in layer.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if not isinstance(parameter, DTensor):
                # FSDP takes no plain parameter whose gradient is a DTensor
                whole = DTensor.from_local(parameter.detach(), mesh, [Replicate()])
                part.register_parameter(name, nn.Parameter(whole, parameter.requires_grad))
    resolve = layer.resolve_impl
    layer.resolve_impl = lambda query: _with_own_heads(resolve(query))
    router = getattr(layer, "router", None)
    if isinstance(router, HeadRouter):
        router.weigh_all = _with_whole_gradient(router.weigh_all)
        router.register_forward_pre_hook(lambda _, inputs: (PartOfGradient.apply(inputs[0]), *inputs[1:]))


def _with_own_heads(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the implementation ``run`` with a core that gets the heads of this rank as plain tensors.

    ``torch.matmul`` flattens sequences and heads, which DTensor before torch 2.13 cannot where heads are divided.
    """
    core = signature(run).parameters.get("attend")
    # of (B, T, h, d_h)
    return run if core is None else partial(run, attend=local_map(core.default, out_placements=[Shard(2)]))


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


def divide(
    model: "Llama | Stage", mesh: DeviceMesh, sequence: bool = False, weights: bool = False, keep: bool = False
) -> None:
    """Divide a model over the axes of ``mesh``: its products over tp, and where ``weights`` its weights over dp."""
    if mesh["tp"].size() > 1:
        divide_model(model, mesh["tp"], sequence)
    if weights:
        divide_weights(model, mesh["dp"], keep)


def divide_model(model: "Llama | Stage", mesh: DeviceMesh, sequence: bool = False) -> None:
    """Divide heads, feed-forward widths and vocabulary over ``mesh``; ``sequence``: norms and residuals by tokens.

    Run it inside ``implicit_replication()``. Raises ConfigError for mixtures and for layers without heads of their own.
    """
    if model.config.mixture:
        raise ConfigError("experts of feed-forward blocks are not divided here; a dense model is")
    if not model.config.columns:
        raise ConfigError(f"the feed-forward blocks of {model.config.variant} models are not divided here")
    between = TOKENS if sequence else Replicate()
    grids: dict[int, DeviceMesh] = {}
    for layer in model.layers:
        divide_heads(layer.self_attn, mesh, sequence, grids)
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
