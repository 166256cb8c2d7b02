"""What the arms of a cell share: one set of parameters per configuration, and inputs that lie on the device."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headcount.bench.latency import workload
from headcount.bench.latency.cells import ELEMENT_BYTES, ROTATED_BYTES, Cell
from headcount.models.build import build, example_inputs
from headcount.models.cache import KeyValueCache
from headcount.models.configs.base import AttentionConfig, ModelConfig

DTYPES = {name: getattr(torch, name) for name in ELEMENT_BYTES}
"""The types of cells, by their names."""
SEED = 20221007
MOST_SETS = 32
MODEL_SETS = 4
MANY_PARAMS = 10**8
"""Of a model with more, a GPU draws the parameters itself: a CPU takes minutes."""
EXACT_PARAMS = 2 * 10**9
"""A model with more has its reference in float32: in float64 it would not fit beside the model."""

Config = AttentionConfig | ModelConfig


class Shared:
    """Parameters, references and inputs of one cell, each made when it is first asked for."""

    def __init__(self, cell: Cell, config: Config) -> None:
        """``config`` is what the cell is about; its routing is that of all inputs. ``memo``: what the checks keep."""
        self.cell, self.config = cell, config
        self.dtype = DTYPES[cell.dtype]
        self._states: dict[Config, Mapping[str, Tensor]] = {}
        self._references: dict[tuple[Config, torch.dtype], nn.Module] = {}
        self.memo: dict[Any, Any] = {}
        self._caches: dict[Any, list[KeyValueCache]] = {}

    def module(self, config: Config, arm: str) -> nn.Module:
        """The module of ``config`` run by ``arm``; all of one configuration hold the same parameters."""
        return self._load(config, arm, self._state(config))

    def reference(self, config: Config, dtype: torch.dtype | None = None, of: Config | None = None) -> nn.Module:
        """The reference on the parameters as the arms have them, rounded to their type; float64 unless told.

        ``of``: the configuration whose parameters it takes, where they are those of another form.
        """
        state = self._state(of or config)
        if dtype is None:
            exact = sum(p.numel() for p in state.values()) <= EXACT_PARAMS
            dtype = torch.float64 if exact else torch.float32
        if (config, dtype) not in self._references:
            rounded = {name: value.to(dtype) for name, value in state.items()}
            self._references[config, dtype] = self._load(config, "reference", rounded)
        return self._references[config, dtype]

    def _load(self, config: Config, arm: str, state: Mapping[str, Tensor]) -> nn.Module:
        # whatever its type: it takes the tensors of the state as they are
        module = build(config, device="meta", impl=arm)
        module.load_state_dict(state, assign=True)
        if hasattr(module, "tie_weights"):
            module.tie_weights()
        return module

    def _state(self, config: Config) -> Mapping[str, Tensor]:
        if config not in self._states:
            device = self.cell.device
            size = sum(p.numel() for p in build(config, device="meta").parameters())
            drawn_on = device if size > MANY_PARAMS else "cpu"
            module = build(config, device=device, dtype=self.dtype, seed=SEED, drawn_on=drawn_on)
            if self.cell.subject == "layer":
                workload.steer(module)
            else:
                wake(module)
            self._states[config] = module.state_dict()
        return self._states[config]

    def caches(self, layer: nn.Module) -> list[KeyValueCache]:
        """Caches with random tokens for ``layer``, together more than the GPU's own holds; layers whose caches have the
        same shapes take the same ones."""
        key = layer.stored_shapes
        if key not in self._caches:
            device, generator = self.cell.device, torch.Generator().manual_seed(SEED)
            how = (self.cell.batch_size, self.cell.seq_len, device, self.dtype)
            first = layer.make_cache(*how)
            for stored in (first.key, first.value):
                stored.copy_(torch.randn(stored.shape, generator=generator))
            sets = max(2, min(MOST_SETS, math.ceil(ROTATED_BYTES[device] / cache_bytes(first))))
            self._caches[key] = [first, *(layer.make_cache(*how) for _ in range(sets - 1))]
            for number, cache in enumerate(self._caches[key][1:], 1):
                # the tokens of each in another place, without another draw
                cache.key.copy_(first.key.roll(number, 1))
                cache.value.copy_(first.value.roll(number, 1))
        return self._caches[key]

    @functools.cached_property
    def num_experts(self) -> int:
        """What the inputs choose from, in a layer that can be told; 0 where nothing is told."""
        known = self.cell.subject == "layer"
        return workload.steerable(build(self.config, device="meta")) if known else 0

    @functools.cached_property
    def selected(self) -> Tensor | None:
        """(N, K) experts that the cell's routing sends each token to."""
        if not self.num_experts:
            return None
        return workload.selection(self.cell.routing, self.cell.tokens, self.num_experts, self.config.top_k, SEED)

    @property
    def largest_share(self) -> float | None:
        """The share of the expert with most rows."""
        if self.selected is None:
            return None
        counts = torch.bincount(self.selected.flatten(), minlength=self.num_experts)
        return float(counts.max() / self.selected.numel())

    @functools.cached_property
    def inputs(self) -> list[Any]:
        """Input sets: features (B, T, d_m) of a layer, tuples of a model's arguments; together more than a cache holds.

        One draw on the CPU gives all sets of a layer, so that they are the same on every device.
        """
        cell = self.cell
        if cell.subject == "model":
            lengths = self.cell.case(self.config).lengths
            how = dict(device=cell.device, dtype=self.dtype)
            seeds = range(SEED, SEED + MODEL_SETS)
            return [tuple(example_inputs(self.config, lengths, **how, seed=seed).values()) for seed in seeds]
        x = _drawn(cell.batch_size, cell.new_len, self.config.d_model, cell.device)
        size = x.numel() * cell.element_bytes
        wanted = MOST_SETS if cell.which == "decode" else math.ceil(ROTATED_BYTES[cell.device] / size)
        # two graphs are kept and walked again and again; more would not fit
        sets = 2 if cell.which == "backward" else max(2, min(MOST_SETS, wanted))
        routed = workload.variations(x, sets)
        if self.selected is not None:
            chosen = self.selected.to(cell.device)
            routed = (workload.route(one, chosen, self.num_experts) for one in routed)
        wants_gradient = cell.which in ("both", "backward")
        return [one.to(self.dtype).requires_grad_(wants_gradient) for one in routed]

    @functools.cached_property
    def gradient(self) -> Tensor:
        """What a layer's output is given as its gradient: one of its own for each element of a sequence."""
        x = self.inputs[0]
        angles = torch.arange(x.shape[1] * x.shape[2], device=x.device, dtype=torch.float64)
        return torch.cos(angles).view(1, *x.shape[1:]).expand(x.shape).to(x.dtype).contiguous()


def cache_bytes(cache: KeyValueCache) -> int:
    """Bytes that a cache has room for."""
    return sum(stored.numel() * stored.element_size() for stored in (cache.key, cache.value))


@functools.lru_cache(maxsize=1)
def _drawn(batch_size: int, seq_len: int, d_model: int, device: str) -> Tensor:
    """One draw, kept on the device for the cells of the same shape that follow."""
    return workload.features(batch_size, seq_len, d_model, SEED).to(device)


@torch.no_grad()
def wake(model: nn.Module) -> None:
    """Small seeded numbers in parameters that start at zero: a model that gives zeros cannot be checked."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.parameters():
        if not parameter.any():
            parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
