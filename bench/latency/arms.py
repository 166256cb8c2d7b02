"""What is timed: layers and models by name, and beside each the dense layers that it must be judged against."""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.bench.case import with_attention
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import variant
from headcount.models.configs.base import AttentionConfig, Implementation, ModelConfig
from headcount.models.configs.layers import layer
from headcount.models.configs.presets import PRESETS, preset
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.configs.suggest import choices

LISTED = "headcount latency --list"
"""The command that names what can be timed."""
AUTO = "auto"
"""The arm that a layer chooses itself."""
FUSED = "fused"
"""How dense layers beside others run."""
FEW_TOKENS = 64
"""Calls of at most so many tokens are also timed by the arms that are meant for few rows."""


@dataclass(frozen=True)
class ArmSpec:
    """One row of a cell: what is built, the arm that runs it, and its role: ``subject``, or what subjects are compared
    with: ``mha`` (same model width), ``mha-inner`` (same inner width), ``mqa`` (same K and D, no router), ``dense``
    (the same layer with every head computed)."""

    name: str
    config: AttentionConfig | ModelConfig
    arm: str
    role: str

    @property
    def masks(self) -> bool:
        """Whether its arm takes masks, and so decodes."""
        known = arm_of(self.config, self.arm)
        return known is None or known.masks

    @property
    def form(self) -> str | None:
        """The form whose ledger says what its arm needs, where that is not the configuration's own."""
        known = arm_of(self.config, self.arm)
        return known and known.form

    @property
    def executed(self) -> AttentionConfig | ModelConfig:
        """The configuration whose closed form says what its arm does, which may be more than what it needs."""
        known = arm_of(self.config, self.arm)
        attention = getattr(self.config, "attention", self.config)
        fields = {field: getattr(attention, other) for field, other in (known.executes if known else ())}
        return with_attention(self.needed, **fields) if fields else self.needed

    @property
    def needed(self) -> AttentionConfig | ModelConfig:
        """The configuration whose closed form says what its arm needs: packed heads, what the ideal form counts."""
        return with_attention(self.config, form=self.form) if self.form else self.config

    @property
    def reference(self) -> AttentionConfig | ModelConfig:
        """The configuration whose reference has the outputs and the gradients of its arm."""
        known = arm_of(self.config, self.arm)
        return with_attention(self.config, form=known.gradient) if known and known.gradient else self.config


def arm_of(config: AttentionConfig | ModelConfig, name: str) -> Implementation | None:
    """The arm called ``name`` of an attention; None for ``auto``, which is any of them."""
    return next((arm for arm in getattr(config, "attention", config).implementations if arm.name == name), None)


def skips(name: str, arm: str) -> bool:
    """Whether ``arm`` computes nothing of a head for a token that does not use it, in the layer called ``name``."""
    known = arm_of(layer(name), arm)
    return known is not None and known.form is not None


def layer_arms(name: str, asked: Sequence[str] | None, device: str | None, tokens: int | None = None) -> list[ArmSpec]:
    """The rows of a layer: itself by each arm that is ``asked`` for, and the dense layers beside it.

    Without ``asked`` by those that run on ``device``, all for None; for a call of few ``tokens`` more.
    """
    config = layer(name)
    # where one arm skips heads, the timed one that does not is what it is judged against
    skips = any(arm.form for arm in config.implementations)
    rows = []
    for how in _chosen(config, asked, device, tokens):
        known = arm_of(config, how)
        every_head = skips and known is not None and known.timed and known.form is None
        rows.append(ArmSpec(name, config, how, "dense" if every_head else "subject"))
    for other in variant(config.variant).beside(config):
        kind = "mqa" if other.role == "mqa" else "mha"
        title = f"{kind}-{other.config.num_heads}x{other.config.head_dim}"
        rows.append(ArmSpec(title, other.config, FUSED, other.role))
    return rows


def model_arms(name: str, asked: Sequence[str] | None, device: str | None, tokens: int | None = None) -> list[ArmSpec]:
    """The rows of a model: itself by each arm. UsageError for a model without a module."""
    if name not in PRESETS:
        raise UsageError(f"unknown model {name!r}; {choices(name, timed_models(), LISTED)}")
    config = preset(name)
    if not config.has_module:
        raise UsageError(f"{name} is a closed form only; {LISTED} names the models that run")
    return [ArmSpec(name, config, how, "subject") for how in _chosen(config.attention, asked, device, tokens)]


def timed_models() -> list[str]:
    """Every preset that can be built."""
    return [name for name in PRESETS if preset(name).has_module]


def arms_by_variant() -> dict[str, list[str]]:
    """The arms of each variant that has any."""
    return {
        name: [arm.name for arm in config.implementations] + [AUTO]
        for name, config in ATTENTIONS.items()
        if config.implementations
    }


def _chosen(config: AttentionConfig, asked: Sequence[str] | None, device: str | None, tokens: int | None) -> list[str]:
    here = list(config.implementations) if device is None else _runnable(config, device)
    if not asked:
        few = tokens is not None and tokens <= FEW_TOKENS
        return [arm.name for arm in here if arm.timed or few and arm.few_rows]
    known = [arm.name for arm in config.implementations] + [AUTO]
    chosen = [how for how in asked if how in known]
    if not chosen:
        raise UsageError(f"{config.variant} has no arm {', '.join(asked)}; choose from {', '.join(known)}")
    for arm in config.implementations:
        if arm.name in chosen and arm not in here:
            needs = lacks(arm, device)
            raise UsageError(f"arm {arm.name} needs {needs}; choose from {', '.join(a.name for a in here)}")
    return chosen


def lacks(arm: Implementation, device: str) -> str | None:
    """What ``arm`` lacks to be timed on ``device``; None where it can. An interpreter is nothing to time."""
    if arm.package is None:
        return None
    if device != "cuda":
        return "a CUDA device"
    import torch

    from headcount.models.kernels.selection import missing

    return missing(arm, torch.device(device))


def _runnable(config: AttentionConfig, device: str) -> list[Implementation]:
    return [arm for arm in config.implementations if lacks(arm, device) is None]
