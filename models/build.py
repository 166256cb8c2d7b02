"""Build models and layers with seeded weights and inputs, on any device."""

import pkgutil
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headcount.models.configs.base import AttentionConfig, ConfigError, LayerConfig, ModelConfig
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.kernels.selection import REFERENCE, select_impl


def make_module(config: AttentionConfig | ModelConfig | MixtureFeedForwardConfig) -> nn.Module:
    """Return the module of ``config``: class ``config.module`` of file ``models/<config.variant>.py``.

    Raises ConfigError for a variant that has formulas but no module, and TypeError for what is no configuration.
    """
    if not isinstance(config, AttentionConfig | ModelConfig | MixtureFeedForwardConfig):
        raise TypeError(f"a configuration is expected, as preset('moa-8K8E128D') returns, not {config!r:.80}")
    if isinstance(config, LayerConfig):
        return make_module(config.attention)
    if config.module is None:
        raise ConfigError(f"{config.variant} has a closed form only, no module")
    return pkgutil.resolve_name(f"headcount.models.{config.variant}:{config.module}")(config)


def build(
    config: AttentionConfig | ModelConfig | MixtureFeedForwardConfig,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialise: bool = True,
    generator_device: str | torch.device = "cpu",
    impl: str = REFERENCE,
) -> nn.Module:
    """Return the model, layer or block of ``config`` on ``device``, in eval mode.

    Weights depend on ``seed`` alone, not on the device or, up to rounding, the dtype; torch's global random state
    stays; ``initialise=False`` gives zeros, which is cheaper and enough for counting. ``generator_device``: the device
    whose generator draws the weights; a GPU's is faster and gives other values. On meta weights have no values.
    ``impl``: the implementation that every attention layer runs, by name, or ``auto``. Raises ConfigError for a
    variant without a module, or without that implementation, and for a device that is missing.
    """
    device = torch.device(device)
    with torch.device("meta"):
        model = make_module(config).to(dtype)
    select_impl(model, impl)
    if device.type != "meta":
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("no CUDA device on this machine; device takes cpu or meta here")
        model.to_empty(device=device)
        # to_empty breaks the sharing of weights
        tie_weights(model)
        if initialise:
            _initialise(model, seed, generator_device)
        else:
            for parameter in model.parameters():
                nn.init.zeros_(parameter)
    return model.eval()


def tie_weights(model: nn.Module) -> None:
    """Tie the weights that ``model`` shares between modules again."""
    if hasattr(model, "tie_weights"):
        model.tie_weights()


def example_inputs(
    config: AttentionConfig | ModelConfig,
    lengths: Mapping[str, int],
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return seeded random inputs by their argument names in the forward of ``config``'s module.

    ``lengths``: input lengths by the names in ``config.lengths``. Tokens and labels are int64, features of ``dtype``;
    a single layer has ``query`` (B, T, d_m) and ``key`` (B, S, d_m). Raises ConfigError for a missing length, or one
    beyond the model's positions.
    """
    missing = [name for name in config.lengths if name not in lengths]
    if missing:
        raise ConfigError(f"lengths needs {', '.join(missing)}; all of {', '.join(config.lengths)} are wanted")

    generator = torch.Generator().manual_seed(seed)

    def make_input(shape: tuple[int, ...], below: int | None) -> Tensor:
        kind = dtype if below is None else torch.int64
        if torch.device(device).type == "meta":
            return torch.zeros(shape, dtype=kind, device=device)
        if below is None:
            drawn = torch.randn(shape, generator=generator)
        else:
            drawn = torch.randint(below, shape, generator=generator)
        return drawn.to(device=device, dtype=kind)

    return {name: make_input(*spec) for name, spec in config.inputs(lengths).items()}


def build_call(
    config: AttentionConfig | ModelConfig,
    lengths: Mapping[str, int],
    *,
    device: str | torch.device,
    dtype: torch.dtype,
    initialise: bool = False,
) -> tuple[nn.Module, tuple, dict[str, Tensor]]:
    """Return the model or layer of ``config`` with the arguments and keywords of a call of it; see :func:`build`."""
    inputs = example_inputs(config, lengths, device=device, dtype=dtype)
    return build(config, initialise=initialise, device=device, dtype=dtype), (), inputs


@torch.no_grad()
def _initialise(model: nn.Module, seed: int, generator_device: str | torch.device) -> None:
    """Set Glorot-uniform products of modules with ``in_features`` and ``out_features``, N(0, 1/d_m) embeddings, zero
    biases, identity norms; a module's own ``initial_values``, by parameter name, where it has them, and normal values
    with its ``initial_std``."""
    generator = torch.Generator(generator_device).manual_seed(seed)
    done = set()
    for owner in model.modules():
        for name, value in owner.initial_values().items() if hasattr(owner, "initial_values") else ():
            done.add(owner.get_parameter(name))
            owner.get_parameter(name).copy_(value)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in done:
                done.add(parameter)
                # drawn in float32, so that every dtype gets the same values
                parameter.copy_(_draw(module, name, parameter.shape, generator))


def _draw(module: nn.Module, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    options = dict(generator=generator, device=generator.device)
    if name in getattr(module, "initial_std", {}):
        return torch.randn(shape, **options) * module.initial_std[name]
    if name in ("bias", "output_bias"):
        return torch.zeros(shape)
    if hasattr(module, "normalized_shape"):
        return torch.ones(shape)
    if hasattr(module, "embedding_dim"):
        return torch.randn(shape, **options) * module.embedding_dim**-0.5
    bound = (6 / (module.in_features + module.out_features)) ** 0.5
    return torch.rand(shape, **options).mul_(2).sub_(1).mul_(bound)
