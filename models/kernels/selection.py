"""Select which arm of a layer runs: a name, or ``auto`` and an explicit rule; recorded on the layer."""

import importlib.util
import logging
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headcount.models.configs.base import Arm, AttentionConfig, ConfigError
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig

REFERENCE, AUTO = "reference", "auto"

SAID: set[tuple[int, str]] = set()
"""Messages that :func:`say_once` has logged in this process."""

_log = logging.getLogger("headcount.kernels")


class Selectable(nn.Module, ABC):
    """A layer with the arms of its ``config``: the same function, on the parameters of the reference.

    ``arm_used`` is the name of the arm that the last forward ran, None before the first. One that ``follows`` others
    has arms of its own: an arm that it lacks leaves it the choice.
    """

    follows = False

    def __init__(self, config: AttentionConfig | MixtureFeedForwardConfig) -> None:
        super().__init__()
        self.config = config
        self.arm = REFERENCE
        self.arm_used: str | None = None

    @property
    def arm(self) -> str:
        """The name of one of the arms, or ``auto``. ConfigError, with the valid choices, when it is set to another."""
        return self._arm

    @arm.setter
    def arm(self, name: str) -> None:
        check(self, name)
        # found here, where nothing is traced: a graph holds no imports
        self._runs = {
            arm.name: pkgutil.resolve_name(f"headcount.models.{arm.target}")
            for arm in self.config.arms
            if name in (arm.name, AUTO)
        }
        self._needs = {arm.name: _needs(arm) for arm in self.config.arms}
        self._arm = name

    @abstractmethod
    def automatic(self, query: Tensor) -> str:
        """The name that ``auto`` stands for, for queries like ``query`` (B, T, d_m)."""

    def describe(self) -> str:
        """Return the variant and its sizes by letter, those of its routing first."""
        letters = self.config.letters()
        order = dict.fromkeys((*self.config.routing_letters, *letters))
        sizes = (f"{n}={letters[n]}" for n in order if type(letters[n]) is int and n != "d_m")
        return f"{self.config.file} d_model={self.config.d_model} {' '.join(sizes)}"

    def chosen(self, query: Tensor) -> Callable:
        """Return the arm to run now, recorded in ``arm_used``.

        ConfigError for one that does not run here, ValueError where there are no queries.
        """
        if not torch.jit.is_tracing() and 0 in query.shape[:2]:
            raise ValueError(f"query holds no tokens: {query.shape[0]} sequences of {query.shape[1]}")
        name = self.arm
        if name == AUTO:
            name = self.automatic(query)
            if not torch.compiler.is_compiling():
                say_once(
                    logging.INFO,
                    f"{self.describe()}, {query.shape[0]}x{query.shape[1]} tokens, {query.dtype}, "
                    f"{query.device}: auto runs {name}",
                )
        if lack := self._needs[name].on(query.device):
            choices = ", ".join(runnable(self.config, query.device))
            raise ConfigError(f"arm {name} needs {lack}; choose from {choices}")
        self.arm_used = name
        return self._runs[name]

    def offers(self, name: str, query: Tensor) -> bool:
        """Whether ``auto`` may take arm ``name``: there is one, which runs on CUDA, and queries have 16 bits."""
        fits = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
        return fits and name in self._needs and not self._needs[name].on(query.device)


def names(layer: Selectable) -> list[str]:
    """Return the valid names of the arm of ``layer``."""
    return [arm.name for arm in layer.config.arms] + [AUTO]


def check(layer: Selectable, name: str) -> None:
    """Raise ConfigError, with the valid choices, where ``layer`` has no arm called ``name``."""
    if name not in names(layer):
        choices = ", ".join(names(layer))
        raise ConfigError(f"unknown arm {name!r} of {layer.config.variant}; choose from {choices}")


def missing(arm: Arm, device: torch.device) -> str | None:
    """Return what ``arm`` needs and lacks on ``device``; None where it runs. On meta every arm has shapes.

    Triton's interpreter, TRITON_INTERPRET=1, takes tensors on the CPU.
    """
    return _needs(arm).on(device)


class _Needs(NamedTuple):
    """``what`` an arm needs where a tensor's device is of none of these types; None where it runs on each."""

    what: str
    devices: tuple[str, ...] | None

    def on(self, device: torch.device) -> str | None:
        """What it needs on ``device``; None where it runs."""
        return None if self.devices is None or device.type in self.devices else self.what


def _needs(arm: Arm) -> _Needs:
    if arm.package is None:
        return _Needs("", None)
    if importlib.util.find_spec(arm.package) is None:
        return _Needs(f"the package {arm.package} (pip install 'headcount[gpu]')", ("meta",))
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return _Needs("a CUDA device", ("meta", "cuda", "cpu") if interpreted else ("meta", "cuda"))


def runnable(config: AttentionConfig | MixtureFeedForwardConfig, device: torch.device) -> list[str]:
    """Return the names of the arms of ``config`` that run on ``device``, the reference first."""
    return [arm.name for arm in config.arms if not missing(arm, device)]


def select_arm(model: nn.Module, name: str) -> None:
    """Select ``name`` for every layer of ``model`` that has a choice. ConfigError where one has no such name.

    A layer that follows others runs ``auto`` where it has no such name and another layer has.
    """
    layers = [module for module in model.modules() if isinstance(module, Selectable)]
    leading = [layer for layer in layers if not layer.follows]
    for layer in leading or layers:
        check(layer, name)
    for layer in layers:
        layer.arm = name if name in names(layer) else AUTO


def arms_used(model: nn.Module) -> dict[str, str | None]:
    """Return module path -> the arm that its last forward ran, for every layer that has a choice."""
    return {path: m.arm_used for path, m in model.named_modules() if isinstance(m, Selectable)}


def say_once(level: int, message: str) -> None:
    """Log ``message`` the first time it comes up in this process; nothing while a graph is traced."""
    if not torch.compiler.is_compiling() and (level, message) not in SAID:
        SAID.add((level, message))
        _log.log(level, message)
