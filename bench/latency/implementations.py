"""Find the implementations of layers and models by name, and the dense layers that they are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import log

from headcount.bench.case import Case, with_attention
from headcount.bench.errors import UsageError
from headcount.bench.variants.variant import variant
from headcount.models.configs.base import AttentionConfig, Implementation, ModelConfig
from headcount.models.configs.layers import layer
from headcount.models.configs.presets import PRESETS, preset, read_section
from headcount.models.configs.registry import ATTENTIONS
from headcount.models.configs.targets import make, read

AUTO = "auto"
"""The implementation that a layer chooses itself."""
FUSED, PACKED = "fused", "packed"
"""The implementations of the dense layers and models that others are compared with: on a GPU layers have the faster one
of both, since q, k and v as one product save launches there."""
VARIED = ("attention", "layers", "d_model", "d_ff")
"""Fields by which a routed model may differ from the dense one that it is compared with."""


@dataclass(frozen=True)
class ImplSpec:
    """One row of a timing case: the configuration, its implementation, and its role.

    Roles: ``subject``, or what subjects are compared with: ``mha`` (same model width), ``mha-inner`` (same inner
    width), ``mqa`` (same K and D, no router), ``dense`` (the same layer with every head computed,
    or the dense model of a routed one).
    """

    name: str
    config: AttentionConfig | ModelConfig
    impl: str
    role: str

    @property
    def label(self) -> str:
        """Layer or model and implementation, by which a row is found in its case."""
        return f"{self.name} {self.impl}"

    @property
    def definition(self) -> Implementation | None:
        """The implementation of the attention; None for ``auto``."""
        return impl_of(self.config, self.impl)

    @property
    def masks(self) -> bool:
        """Whether the implementation takes masks, and so can decode."""
        return self.definition is None or self.definition.masks

    @property
    def executed(self) -> AttentionConfig | ModelConfig:
        """The configuration whose closed form states the work that is executed, which may exceed what is needed."""
        attention = getattr(self.config, "attention", self.config)
        executes = self.definition.executes if self.definition else ()
        return with_attention(self.needed, **{field: getattr(attention, other) for field, other in executes})

    @property
    def needed(self) -> AttentionConfig | ModelConfig:
        """The configuration whose closed form states the work that is needed: for packed heads, the ideal form."""
        form = self.definition and self.definition.form
        return with_attention(self.config, form=form) if form else self.config

    @property
    def reference(self) -> AttentionConfig | ModelConfig:
        """The configuration whose reference has the same outputs and gradients."""
        form = self.definition and self.definition.gradient
        return with_attention(self.config, form=form) if form else self.config


def find_config(subject: str, name: str) -> AttentionConfig | ModelConfig:
    """Return the configuration of a layer or a model, by its name or by a TARGET: ``moa:K=8,…``, ``PRESET,K=4,…``."""
    if subject == "layer" and ":" not in name:
        return layer(name)
    if subject == "model" and "," not in name:
        return preset(name)
    spec, fields, _ = read(name)
    return make(spec, fields)


def impl_of(config: AttentionConfig | ModelConfig, name: str) -> Implementation | None:
    """Return the implementation called ``name`` of an attention; None for ``auto``, which is any of them."""
    return next((impl for impl in getattr(config, "attention", config).implementations if impl.name == name), None)


def skips(name: str, impl: str) -> bool:
    """Return whether ``impl`` of the layer ``name`` computes nothing of a head for tokens that do not use it."""
    known = impl_of(find_config("layer", name), impl)
    return known is not None and known.form is not None


def layer_impls(
    name: str, requested: Sequence[str] | None, device: str | None, tokens: int | None = None
) -> list[ImplSpec]:
    """Return the rows of a layer: one for each implementation, and the dense layers that it is compared with.

    Without ``requested`` those implementations that run on ``device`` (None: on any); for few ``tokens`` more.
    """
    config = find_config("layer", name)
    # where an implementation skips heads, the timed one that does not is what it is compared with
    skips = any(impl.form for impl in config.implementations)
    dense = [impl.name for impl in config.implementations if skips and impl.timed and impl.form is None]
    impls = _resolve_impls(config, requested, device, tokens)
    rows = [ImplSpec(name, config, how, "dense" if how in dense else "subject") for how in impls]
    for role, other in variant(config.variant).baselines(config).items():
        title = f"{'mqa' if role == 'mqa' else 'mha'}-{other.num_heads}x{other.head_dim}"
        rows += [ImplSpec(title, other, how, role) for how in ((FUSED, PACKED) if device == "cuda" else (FUSED,))]
    return rows


def model_impls(
    name: str, requested: Sequence[str] | None, device: str | None, tokens: int | None = None
) -> list[ImplSpec]:
    """Return the rows of a model: one for each implementation, and the dense model that it is compared with.

    UsageError for a model without a module.
    """
    config = find_config("model", name)
    if not config.has_module:
        raise UsageError(f"{name} is a closed form only; headcount latency --list names the models that run")
    impls = _resolve_impls(config.attention, requested, device, tokens)
    rows = [ImplSpec(name, config, how, "subject") for how in impls]
    if (dense := find_dense_preset(name)) is not None:
        config = preset(dense)
        timed = _resolve_impls(config.attention, None, device, tokens)
        rows.append(ImplSpec(dense, config, FUSED if FUSED in timed else timed[0], "dense"))
    return rows


@cache
def find_dense_preset(name: str) -> str | None:
    """Return the dense preset that is nearest in MACs to the routed model ``name``; None for a dense one, and for one
    that is no preset.

    It has the attention of the preset that ``name`` is derived from, and the same fields but for the widths. None where
    no preset has.
    """
    if name not in PRESETS:
        return None
    config, dense = preset(name), preset(_origin(name)).attention
    if not config.attention.routing_letters or dense.routing_letters:
        return None
    alike = {other: preset(other) for other in timed_models() if preset(other).attention.variant == dense.variant}
    alike = [other for other, found in alike.items() if _fixed_fields(found) == _fixed_fields(config)]
    macs = Case.of(name).ledger.macs
    return min(alike, key=lambda other: abs(log(Case.of(other).ledger.macs / macs)), default=None)


def _origin(name: str) -> str:
    """Return the preset that ``name`` is derived from in the end, itself where it states every field."""
    listed = read_section("presets")
    while "like" in listed[name]:
        name = listed[name]["like"]
    return name


def _fixed_fields(config: ModelConfig) -> tuple:
    """Return the class and the fields of a model, without its attention and widths."""
    return type(config), tuple(getattr(config, field.name) for field in fields(config) if field.name not in VARIED)


def timed_models() -> list[str]:
    """Return every preset that can be built."""
    return [name for name in PRESETS if preset(name).has_module]


def impls_by_variant() -> dict[str, list[str]]:
    """Return the implementations of each variant that has any."""
    return {name: _impl_names(config) for name, config in ATTENTIONS.items() if config.implementations}


def _impl_names(config: AttentionConfig | type[AttentionConfig]) -> list[str]:
    return [*(impl.name for impl in config.implementations), AUTO]


def _resolve_impls(
    config: AttentionConfig, requested: Sequence[str] | None, device: str | None, tokens: int | None
) -> list[str]:
    lacks = {impl: device and missing_on(impl, device) for impl in config.implementations}
    here = [impl for impl, lack in lacks.items() if not lack]
    if not requested:
        # gathering copies a matrix for each row: more of them than there are, with as many rows as experts
        return [
            impl.name
            for impl in here
            if impl.timed or impl.few_rows and tokens is not None and tokens * config.top_k < config.num_experts
        ]
    known = _impl_names(config)
    chosen = [how for how in requested if how in known]
    if not chosen:
        raise UsageError(
            f"{config.variant} has no implementation {', '.join(requested)}; choose from {', '.join(known)}"
        )
    for impl, lack in lacks.items():
        if impl.name in chosen and lack:
            raise UsageError(f"implementation {impl.name} needs {lack}; choose from {', '.join(a.name for a in here)}")
    return chosen


def missing_on(impl: Implementation, device: str) -> str | None:
    """Return what ``impl`` lacks to be timed on ``device``; None where it can be. An interpreter is not timed."""
    if impl.package is None:
        return None
    if device != "cuda":
        return "a CUDA device"
    import torch

    from headcount.models.kernels.selection import missing

    return missing(impl, torch.device(device))
