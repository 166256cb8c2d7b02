"""Make the tensors that the implementations of a case share: parameters of each configuration, and inputs."""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.latency.timing_cases import ROTATED_BYTES, TimingCase, check_memory
from headcount.models.build import build, example_inputs, tie_weights
from headcount.models.cache import KeyValueCache
from headcount.models.configs.base import AttentionConfig, ModelConfig

SEED = 20221007
LOGIT_MARGIN = 4.0
"""Difference between the logits of selected experts and of the others."""
MOST_SETS = 32
MODEL_SETS = 4
EXACT_PARAMS = 2 * 10**9
"""A model with more parameters has a float32 reference, because a float64 one would not fit into memory."""

Config = AttentionConfig | ModelConfig


class CaseTensors:
    """Parameters, references and inputs of one case, each created at its first use."""

    def __init__(self, case: TimingCase, config: Config, before: "CaseTensors | None" = None) -> None:
        """``config`` is the subject of the case; its routing is that of all inputs. ``memo`` has what is made once.

        Parameters that ``before``, the tensors of another case, has for configurations of this one are not drawn again.
        """
        self.case, self.config = case, config
        self.dtype = getattr(torch, case.dtype)
        self._states: dict[Config, Mapping[str, Tensor]] = {}
        if before and all(getattr(case, name) == getattr(before.case, name) for name in ("subject", "dtype", "device")):
            own = {spec.config for spec in case.impls()}
            self._states = {config: state for config, state in before._states.items() if config in own}
        self.memo: dict[Any, Any] = {}

    def module(self, config: Config, impl: str) -> nn.Module:
        """Return the module of ``config`` with ``impl``; all of one configuration hold the same parameters."""
        return self._load(config, impl, self._state(config))

    def reference(self, config: Config, dtype: torch.dtype | None = None, of: Config | None = None) -> nn.Module:
        """Return the reference on the parameters of the implementations, rounded to their dtype (default: float64).

        ``of``: the configuration whose parameters it takes, where that has another form.
        """
        state = self._state(of or config)
        if dtype is None:
            exact = sum(p.numel() for p in state.values()) <= EXACT_PARAMS
            dtype = torch.float64 if exact else torch.float32
        if (config, dtype) not in self.memo:
            rounded = {name: value.to(dtype) for name, value in state.items()}
            self.memo[config, dtype] = self._load(config, "reference", rounded)
        return self.memo[config, dtype]

    def _load(self, config: Config, impl: str, state: Mapping[str, Tensor]) -> nn.Module:
        # assign keeps the dtype of the state
        module = build(config, device="meta", impl=impl)
        module.load_state_dict(state, assign=True)
        tie_weights(module)
        return module

    def _state(self, config: Config) -> Mapping[str, Tensor]:
        if config not in self._states:
            device, is_layer = self.case.device, self.case.subject == "layer"
            # a GPU takes milliseconds for the weights of a model that a CPU takes seconds for
            generator_device = "cpu" if is_layer else device
            if not is_layer:
                params = sum(one.numel() for one in build(config, device="meta").parameters())
                check_memory(self.case.name, params * self.dtype.itemsize, device)
            module = build(config, device=device, dtype=self.dtype, seed=SEED, generator_device=generator_device)
            if is_layer:
                steer(module)
            else:
                fill_zero_parameters(module, device)
            self._states[config] = module.state_dict()
        return self._states[config]

    def caches(self, layer: nn.Module) -> list[KeyValueCache]:
        """Return key-value caches with random tokens for ``layer``, together larger than the L2 cache.

        Layers whose caches have the same shapes share them.
        """
        key = "caches", layer.stored_shapes
        if key not in self.memo:
            device, generator = self.case.device, torch.Generator().manual_seed(SEED)
            how = (self.case.batch_size, self.case.seq_len, device, self.dtype)
            first = layer.make_cache(*how)
            for stored in (first.key, first.value):
                stored.copy_(torch.randn(stored.shape, generator=generator))
            sets = max(2, min(MOST_SETS, math.ceil(ROTATED_BYTES[device] / (first.key.nbytes + first.value.nbytes))))
            self.memo[key] = [first, *(layer.make_cache(*how) for _ in range(sets - 1))]
            for number, cache in enumerate(self.memo[key][1:], 1):
                # the same tokens at other positions, without another draw
                cache.key.copy_(first.key.roll(number, 1))
                cache.value.copy_(first.value.roll(number, 1))
        return self.memo[key]

    @functools.cached_property
    def num_experts(self) -> int:
        """Experts that the inputs select from, in a layer whose router can be steered; else 0."""
        if self.case.subject == "model" or not self.config.steerable:
            return 0
        return build(self.config, device="meta").router.routing_projection.out_features

    @functools.cached_property
    def selected(self) -> Tensor | None:
        """(N, K) experts that the routing of the case sends each token to."""
        if not self.num_experts:
            return None
        return select_experts(self.case.routing, self.case.tokens, self.num_experts, self.config.top_k, SEED)

    @property
    def largest_share(self) -> float | None:
        """The share of the expert with the most rows."""
        if self.selected is None:
            return None
        counts = torch.bincount(self.selected.flatten(), minlength=self.num_experts)
        return float(counts.max() / self.selected.numel())

    @functools.cached_property
    def inputs(self) -> list[Any]:
        """Input sets: features (B, T, d_m) of a layer, tuples of a model's arguments; together larger than a cache.

        One draw on the CPU gives all sets of a layer, so that they are the same on every device.
        """
        case = self.case
        if case.subject == "model":
            how = dict(lengths=case.at_lengths(self.config).lengths, device=case.device, dtype=self.dtype)
            seeds = range(SEED, SEED + MODEL_SETS)
            return [tuple(example_inputs(self.config, **how, seed=seed).values()) for seed in seeds]
        x = draw_features(case.batch_size, case.new_len, self.config.d_model, case.device)
        size = x.numel() * case.element_bytes
        wanted = MOST_SETS if case.which == "decode" else math.ceil(ROTATED_BYTES[case.device] / size)
        sets = max(2, min(MOST_SETS, wanted))
        routed = vary_inputs(x, sets)
        if self.selected is not None:
            routed = (route_inputs(one, self.selected, self.num_experts) for one in routed)
        return [one.to(self.dtype).requires_grad_(case.which == "both") for one in routed]

    @functools.cached_property
    def gradient(self) -> Tensor:
        """The gradient of a layer's output, with a different value for each element of a sequence."""
        x = self.inputs[0]
        angles = torch.arange(x.shape[1] * x.shape[2], device=x.device, dtype=torch.float64)
        return torch.cos(angles).view(1, *x.shape[1:]).expand(x.shape).to(x.dtype).contiguous()


@torch.no_grad()
def fill_zero_parameters(model: nn.Module, device: str) -> None:
    """Fill parameters that start at zero with small random values: a model whose output is zero cannot be checked."""
    generator = torch.Generator(device).manual_seed(SEED)
    for parameter in model.parameters():
        if not parameter.any():
            parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator, device=device))


def expert_shares(routing: str, num_experts: int) -> list[float]:
    """Return the share of (token, slot) pairs of each expert, as far as K different experts allow.

    ``paper``: falls evenly so that the largest is 5.5 times the smallest, as in Figures 3-4 (E = 32: 5.29 % and
    0.96 %). ``zipf``: proportional to 1 / rank. Otherwise equal.
    """
    if routing == "paper":
        weights = [5.5 - 4.5 * i / max(1, num_experts - 1) for i in range(num_experts)]
    elif routing == "zipf":
        weights = [1 / (i + 1) for i in range(num_experts)]
    else:
        weights = [1.0] * num_experts
    return [weight / sum(weights) for weight in weights]


def inclusion_probs(shares: list[float], top_k: int) -> list[float]:
    """Return the probability that a token selects each expert, of sum K: K times its share, at most 1.

    ``shares`` fall. K different experts leave no expert more than 1 / K of the choices: what a larger share would get
    beyond it goes to the others, in proportion.
    """
    certain = 0
    while (top_k - certain) * shares[certain] > sum(shares[certain:]):
        certain += 1
    return [1.0] * certain + [(top_k - certain) * share / sum(shares[certain:]) for share in shares[certain:]]


def select_experts(routing: str, tokens: int, num_experts: int, top_k: int, seed: int) -> Tensor:
    """Return (N, K) different experts for each token. ``balanced`` takes turns, so that shares are equal to a row;
    ``one-expert`` sends every token to expert 0 and its other slots in turn.

    The others are sampled systematically: the ``inclusion_probs`` lie end to end on [0, K), and a token takes the
    experts under u, u + 1, … u + K - 1. The u of all tokens are spread evenly over [0, 1), in random order, so that
    shares come out to within a row or two.
    """
    if routing == "balanced":
        return (torch.arange(tokens)[:, None] * top_k + torch.arange(top_k)) % num_experts
    if routing == "one-expert":
        others = 1 + (torch.arange(tokens)[:, None] * (top_k - 1) + torch.arange(top_k - 1)) % max(1, num_experts - 1)
        return torch.cat([torch.zeros(tokens, 1, dtype=torch.int64), others], dim=1)
    ends = torch.tensor(inclusion_probs(expert_shares(routing, num_experts), top_k), dtype=torch.float64).cumsum(0)
    generator = torch.Generator().manual_seed(seed)
    starts = (torch.randperm(tokens, generator=generator).double() + 0.5) / tokens
    # rounding must not end the last interval before the last point
    ends[-1] = top_k
    return torch.searchsorted(ends, starts[:, None] + torch.arange(top_k), right=True)


@functools.lru_cache(maxsize=1)
def draw_features(batch_size: int, seq_len: int, d_model: int, device: str) -> Tensor:
    """Return N(0, 1) inputs, (B, T, d_m), the same on every device; cached for the next cases of the same shape."""
    return torch.randn(batch_size, seq_len, d_model, generator=torch.Generator().manual_seed(SEED)).to(device)


def vary_inputs(x: Tensor, count: int) -> Iterator[Tensor]:
    """Yield ``count`` inputs from one draw, (B, T, d_m): tokens at other positions, with other signs."""
    tokens = x.flatten(0, 1)
    for i in range(count):
        yield (tokens.roll(i * max(1, len(tokens) // count), 0) * (-1) ** i).view_as(x)


def route_inputs(x: Tensor, selected: Tensor, num_experts: int) -> Tensor:
    """Return ``x`` with its first E features shifted so that :func:`steer`ed routers select ``selected``."""
    chosen = x.new_zeros(selected.shape[0], num_experts).scatter_(1, selected.to(x.device), 1.0).view(*x.shape[:-1], -1)
    moved = x.clone()
    moved[..., :num_experts] = LOGIT_MARGIN * (2 * chosen - 1) + 0.5 * x[..., :num_experts].clamp(-3, 3)
    return moved


@torch.no_grad()
def steer(layer: nn.Module) -> None:
    """Set a linear router so that the logit of expert e is feature e; other layers are unchanged."""
    if layer.config.steerable:
        weight = layer.router.routing_projection.weight
        weight.zero_()
        weight[:, : weight.shape[0]] = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
