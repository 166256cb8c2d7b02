"""Divide a layer or a language model over the ranks of a device mesh, by torch's DTensor and FSDP.

The configuration of a layer says which of its projections are divided by outputs and which by inputs.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
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
from headcount.models.head_router import HeadRouter
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
