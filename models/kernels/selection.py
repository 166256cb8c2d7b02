"""Select which implementation of a layer runs: a name, or ``auto`` and an explicit rule; recorded on the layer."""

import importlib.util
import logging
import os
import pkgutil
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headcount.models.configs.base import AttentionConfig, ConfigError, Implementation
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig

REFERENCE, AUTO = "reference", "auto"

LOGGED: set[tuple[int, str]] = set()
"""Messages that :func:`log_once` has logged in this process."""

_log = logging.getLogger("headcount.kernels")


class Selectable(nn.Module):
    """A layer with several implementations of one function, on the same parameters.

    ``impl_used`` is the name of the implementation that the last forward ran, None before the first. A layer that
    ``inherits_impl`` runs ``auto`` where it lacks the implementation of the others.
    """

    inherits_impl = False

    def __init__(self, config: AttentionConfig | MixtureFeedForwardConfig) -> None:
        super().__init__()
        self.config = config
        self.impl = REFERENCE
        self.impl_used: str | None = None

    @property
    def impl(self) -> str:
        """The name of an implementation, or ``auto``. Setting another raises ConfigError with the valid choices."""
        return self._impl

    @impl.setter
    def impl(self, name: str) -> None:
        check(self, name)
        # found here, where nothing is traced: a graph holds no imports
        self._runs = {
            impl.name: pkgutil.resolve_name(f"headcount.models.{impl.target}")
            for impl in self.config.implementations
            if name in (impl.name, AUTO)
        }
        self._needs = {impl.name: _needs(impl) for impl in self.config.implementations}
        self._impl = name

    def automatic(self, query: Tensor) -> str:
        """Return the implementation that ``auto`` selects for queries like ``query`` (B, T, d_m)."""
        return REFERENCE

    def resolve_impl(self, query: Tensor) -> Callable:
        """Return the implementation to run now, recorded in ``impl_used``.

        Raises ConfigError for one that does not run here, ValueError without queries.
        """
        if not torch.jit.is_tracing() and 0 in query.shape[:2]:
            raise ValueError(f"query holds no tokens: {query.shape[0]} sequences of {query.shape[1]}")
        name = self.impl
        if name == AUTO:
            name = self.automatic(query)
            if not torch.compiler.is_compiling():
                tokens = f"{query.shape[0]}x{query.shape[1]} tokens, {query.dtype}, {query.device}"
                log_once(logging.INFO, f"{self.config}, {tokens}: auto runs {name}")
        if lack := _lack(self._needs[name], query.device):
            choices = ", ".join(runnable(self.config, query.device))
            raise ConfigError(f"implementation {name} needs {lack}; choose from {choices}")
        self.impl_used = name
        return self._runs[name]

    def is_available(self, name: str, query: Tensor) -> bool:
        """Return whether ``auto`` may select ``name``: an implementation that runs on CUDA, for queries of 16 bits."""
        fits = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
        return fits and name in self._needs and not _lack(self._needs[name], query.device)


def names(layer: Selectable) -> list[str]:
    """Return the valid names of the implementation of ``layer``."""
    return [impl.name for impl in layer.config.implementations] + [AUTO]


def check(layer: Selectable, name: str) -> None:
    """Raise ConfigError, with the valid choices, where ``layer`` has no implementation called ``name``."""
    if name not in names(layer):
        choices = ", ".join(names(layer))
        raise ConfigError(f"unknown implementation {name!r} of {layer.config.variant}; choose from {choices}")


def missing(impl: Implementation, device: torch.device) -> str | None:
    """Return what ``impl`` needs and lacks on ``device``; None where it runs. On meta every implementation has shapes.

    Triton's interpreter, TRITON_INTERPRET=1, takes tensors on the CPU.
    """
    return _lack(_needs(impl), device)


def _lack(needs: tuple[str, tuple[str, ...] | None], device: torch.device) -> str | None:
    what, device_types = needs
    return None if device_types is None or device.type in device_types else what


def _needs(impl: Implementation) -> tuple[str, tuple[str, ...] | None]:
    """Return what ``impl`` needs on devices of other types than the second value; None where it runs on each."""
    if impl.package is None:
        return "", None
    if importlib.util.find_spec(impl.package) is None:
        return f"the package {impl.package} (pip install {impl.package})", ("meta",)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return "a CUDA device", ("meta", "cuda", "cpu") if interpreted else ("meta", "cuda")


def runnable(config: AttentionConfig | MixtureFeedForwardConfig, device: torch.device) -> list[str]:
    """Return the names of the implementations of ``config`` that run on ``device``, the reference first."""
    return [impl.name for impl in config.implementations if not missing(impl, device)]


def select_impl(model: nn.Module, name: str) -> None:
    """Select ``name`` for every layer of ``model`` that has a choice. Raises ConfigError where one has no such name.

    A layer with ``inherits_impl`` runs ``auto`` where it has no such name and another layer has.
    """
    layers = [module for module in model.modules() if isinstance(module, Selectable)]
    leading = [layer for layer in layers if not layer.inherits_impl]
    for layer in leading or layers:
        check(layer, name)
    for layer in layers:
        layer.impl = name if name in names(layer) else AUTO


def log_once(level: int, message: str) -> None:
    """Log ``message`` once in this process, and never while a graph is traced."""
    if not torch.compiler.is_compiling() and (level, message) not in LOGGED:
        LOGGED.add((level, message))
        _log.log(level, message)
