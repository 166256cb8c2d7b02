"""An arm made ready to call: built, steered, given inputs, and checked against the float64 reference."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.latency import workload
from headcount.bench.latency.arms import ArmSpec
from headcount.bench.latency.cells import DTYPES, ROTATED_BYTES, Cell
from headcount.models.configs.base import AttentionConfig, ModelConfig

SEED = 20221007
MOST_SETS = 32
CHECKED_TOKENS = 256
"""The check runs on one sequence of at most this many tokens: the float64 reference gathers weights per token."""


@dataclass
class Run:
    """``call(i)`` runs the arm once on input set i; ``check()`` gives its outputs and the reference's."""

    label: str
    module: nn.Module
    call: Callable[[int], Any]
    inputs: list[Any]
    input_bytes: int
    check: Callable[[], list[tuple[Tensor, Tensor]]]
    largest_share: float | None = None
    layers: list[nn.Module] = field(default_factory=list)

    def error(self) -> float:
        """The largest relative error of an output against the float64 reference, in the 2-norm."""
        errors = []
        for found, expected in self.check():
            difference = torch.linalg.vector_norm(found.double().cpu() - expected.cpu())
            errors.append(float(difference / torch.linalg.vector_norm(expected.cpu())))
        return max(errors, key=lambda e: (math.isnan(e), e))

    def arm_used(self) -> str | None:
        """The path that the layers took in their last forward pass; None where they do not say."""
        used = {getattr(layer, "arm_used", None) for layer in self.layers} - {None}
        return "+".join(sorted(used)) or None


def _build(config: AttentionConfig | ModelConfig, device: str, dtype: torch.dtype, arm: str = "reference") -> nn.Module:
    from headcount.models.build import build

    return build(config, device=device, dtype=dtype, seed=SEED, arm=arm)


def _attention_layers(module: nn.Module) -> list[nn.Module]:
    return [layer for layer in module.modules() if hasattr(layer, "arm")]


def layer_run(cell: Cell, spec: ArmSpec) -> Run:
    """A bare attention layer on N(0, 1) features, routed as the cell says."""
    dtype, config = DTYPES[cell.dtype], spec.config
    layer = _build(spec.config, cell.device, dtype, spec.arm)
    workload.steer(layer)
    selected = None
    num_experts = workload.steerable(layer)
    if num_experts:
        tokens = cell.batch_size * cell.seq_len
        selected = workload.selection(cell.routing, tokens, num_experts, config.top_k, SEED)

    def make(seed: int) -> Tensor:
        x = workload.features(cell.batch_size, cell.seq_len, config.d_model, seed)
        return x if selected is None else workload.route(x, selected, num_experts)

    first = make(SEED)
    sets = _number_of_sets(first, dtype, cell.device)
    inputs = [first, *(make(SEED + i) for i in range(1, sets))]
    inputs = [x.to(cell.device, dtype) for x in inputs]
    call = _LAYER_CALLS[cell.which](layer, inputs, cell)

    def check() -> list[tuple[Tensor, Tensor]]:
        reference = _build(spec.reference, cell.device, torch.float64)
        workload.steer(reference)
        x = inputs[0][:1, : min(cell.seq_len, CHECKED_TOKENS)]
        return list(zip(_outputs(layer, x, cell.which), _outputs(reference, x.double(), cell.which), strict=True))

    share = None
    if selected is not None:
        share = float(torch.bincount(selected.flatten(), minlength=num_experts).max() / selected.numel())
    return Run(
        f"{spec.name} {spec.arm}",
        layer,
        call,
        inputs,
        inputs[0].numel() * inputs[0].element_size(),
        check,
        share,
        _attention_layers(layer),
    )


def _number_of_sets(x: Tensor, dtype: torch.dtype, device: str) -> int:
    element = torch.empty((), dtype=dtype).element_size()
    return max(2, min(MOST_SETS, math.ceil(ROTATED_BYTES[device] / (x.numel() * element))))


def _outputs(layer: nn.Module, x: Tensor, which: str) -> list[Tensor]:
    """What the check compares: the output, in training the gradient of the input too, or the last decoded token."""
    if which == "decode":
        with torch.no_grad():
            cache = layer.make_cache(x.shape[0], x.shape[1], device=x.device, dtype=x.dtype)
            layer(x[:, :-1], cache=cache) if x.shape[1] > 1 else None
            return [layer(x[:, -1:], cache=cache)]
    if which == "forward":
        with torch.no_grad():
            return [layer(x)]
    x = x.detach().requires_grad_()
    out = layer(x)
    # Neither ones nor a constant stride: a gradient of its own for each output.
    (gradient,) = torch.autograd.grad(out, x, torch.cos(torch.arange(out.numel(), device=x.device)).view_as(out).to(x))
    return [out.detach(), gradient]


def _forward(layer, inputs, cell):
    def call(i):
        with torch.no_grad():
            return layer(inputs[i])

    return call


def _both(layer, inputs, cell):
    inputs[:] = [x.requires_grad_() for x in inputs]
    parameters = list(layer.parameters())
    gradient = torch.randn_like(inputs[0])

    def call(i):
        return torch.autograd.grad(layer(inputs[i]), [inputs[i], *parameters], gradient)

    return call


def _backward(layer, inputs, cell):
    # Two graphs are kept and walked again and again; more would not fit.
    inputs[:] = [x.requires_grad_() for x in inputs[:2]]
    parameters = list(layer.parameters())
    outputs, gradient = [layer(x) for x in inputs], torch.randn_like(inputs[0])

    def call(i):
        return torch.autograd.grad(outputs[i], [inputs[i], *parameters], gradient, retain_graph=True)

    return call


def _decode(layer, inputs, cell):
    filled = cell.seq_len - 1
    cache = layer.make_cache(cell.batch_size, cell.seq_len, device=inputs[0].device, dtype=inputs[0].dtype)
    with torch.no_grad():
        if filled:
            layer(inputs[0][:, :filled], cache=cache)

    def call(i):
        cache.length = filled
        with torch.no_grad():
            return layer(inputs[i][:, -1:], cache=cache)

    return call


_LAYER_CALLS = {"forward": _forward, "both": _both, "backward": _backward, "decode": _decode}


@torch.no_grad()
def _wake(model: nn.Module) -> None:
    """Small seeded numbers in parameters that start at zero: a model that gives zeros cannot be checked."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.parameters():
        drawn = 0.02 * torch.randn(parameter.shape, generator=generator)
        if not parameter.any():
            parameter.copy_(drawn)


def _loss(out: Tensor, last: Tensor) -> Tensor:
    """Cross-entropy with the last input as targets, where the output is one distribution for each of its tokens;
    else the mean square."""
    if out.shape[:2] == last.shape:
        return nn.functional.cross_entropy(out.flatten(0, 1).float(), last.flatten())
    return out.float().square().mean()


def model_run(cell: Cell, spec: ArmSpec) -> Run:
    """A whole model on random tokens, with the cross-entropy of random targets where it is trained."""
    from headcount.models.build import example_inputs

    dtype = DTYPES[cell.dtype]
    model = _build(spec.config, cell.device, dtype, spec.arm)
    _wake(model)
    lengths = {"batch_size": cell.batch_size}
    lengths |= dict.fromkeys((name for name in spec.config.lengths if name != "batch_size"), cell.seq_len)
    inputs = [
        tuple(example_inputs(spec.config, lengths, device=cell.device, dtype=dtype, seed=SEED + i).values())
        for i in range(4)
    ]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def forward(i):
        with torch.no_grad():
            return model(*inputs[i])

    def both(i):
        return torch.autograd.grad(_loss(model(*inputs[i]), inputs[i][-1]), parameters, allow_unused=True)

    def check() -> list[tuple[Tensor, Tensor]]:
        reference = _build(spec.config, cell.device, torch.float64)
        _wake(reference)
        short = tuple(x[:1, :32] if x.dim() == 2 else x[:1] for x in inputs[0])
        exact = tuple(x.double() if x.is_floating_point() else x for x in short)
        with torch.no_grad():
            return [(model(*short), reference(*exact))]

    return Run(
        f"{spec.name} {spec.arm}",
        model,
        {"forward": forward, "both": both}[cell.which],
        inputs,
        sum(tokens.numel() * tokens.element_size() for tokens in inputs[0]),
        check,
        layers=_attention_layers(model),
    )
