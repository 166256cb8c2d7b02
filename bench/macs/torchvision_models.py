"""torchvision's models as its own table counts them: with weights' sizes, without weights, on inputs of no values."""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor, nn

from headcount.bench.count import count_macs
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.trace.names import patched

SIDE, FRAMES = 512, 16
"""An image before the weights' own preparation, and a film's length (pytorch/vision, test/common_extended_utils.py)."""
DETECTION_SIDES = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
    "keypointrcnn_resnet50_fpn": 1333,
    "ssd300_vgg16": 300,
    "ssdlite320_mobilenet_v3_large": 320,
}
"""Images of detectors that do not get 800 (test/test_extended_models.py)."""
MISSING = re.compile(r"operator torchvision::(\w+) does not exist")


@dataclass(frozen=True)
class Counted:
    """``macs`` of what every run does, ``per_box`` of each box that is looked at again and ``per_object`` of each that
    is kept for masks or keypoints, both 0 where there are none."""

    input: tuple[int, ...]
    params: int
    macs: int
    per_box: int = 0
    per_object: int = 0


def package() -> ModuleType:
    """torchvision; EnvironmentMissing where it is not there or does not import.

    Where its compiled operators do not fit this torch, as those of its wheels for CUDA do not fit a CPU's, they are
    declared without kernels: models count without them.
    """
    while True:
        try:
            return importlib.import_module("torchvision.models")
        except ModuleNotFoundError as error:
            raise EnvironmentMissing("torchvision is not installed; pip install 'headcount[torchvision]'") from error
        except RuntimeError as error:
            missing = MISSING.search(str(error))
            if missing is None:
                raise EnvironmentMissing(f"torchvision does not import: {str(error).splitlines()[0]}") from error
            torch.library.define(f"torchvision::{missing[1]}", "(Tensor boxes) -> Tensor")


def count(models: ModuleType, kind: str, name: str, weights: str) -> Counted:
    """The model of one row of torchvision's table; quantised ones as their floating-point originals, as it does."""
    chosen = models.get_weight(weights)
    if kind == "quantization":
        chosen, name = chosen.meta["unquantized"], name.removeprefix("quantized_")
    with _without_values():
        model = models.get_model_builder(name)(weights=chosen).to("meta").eval()
    params = sum(parameter.numel() for parameter in model.parameters())
    if kind == "detection":
        return _detector(model, name, params)
    image = torch.zeros(1, FRAMES, 3, SIDE, SIDE) if kind == "video" else torch.zeros(1, 3, SIDE, SIDE)
    prepare = chosen.transforms()
    inputs = prepare(image, image) if kind == "optical_flow" else (prepare(image),)
    found = count_macs(model, *(tensor.to("meta") for tensor in inputs))
    return Counted(tuple(inputs[0].shape), params, found.macs)


@contextmanager
def _without_values() -> Iterator[None]:
    """Parameters and buffers have no values, and weights are nowhere fetched and nowhere put."""
    register, hold = nn.Module.register_parameter, nn.Module.register_buffer

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    def held_on_meta(module: nn.Module, name: str, buffer: Tensor | None, persistent: bool = True) -> None:
        hold(module, name, None if buffer is None else buffer.to("meta"), persistent)

    enum = importlib.import_module("torchvision.models._api").WeightsEnum
    with patched(
        (nn.Module, "register_parameter", on_meta),
        (nn.Module, "register_buffer", held_on_meta),
        (enum, "get_state_dict", lambda *_, **__: {}),
        (nn.Module, "load_state_dict", lambda *_, **__: None),
    ):
        yield


class _Fixed(nn.Module):
    """What a detector does to every image: its backbone, and the head that looks everywhere."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.head = model.head if hasattr(model, "head") else model.rpn.head

    def forward(self, images: Tensor):
        features = self.backbone(images)
        return self.head([features] if isinstance(features, Tensor) else list(features.values()))


def _detector(model: nn.Module, name: str, params: int) -> Counted:
    side = DETECTION_SIDES.get(name, 800)
    images = model.transform([torch.zeros(3, side, side, device="meta")])[0].tensors
    macs = count_macs(_Fixed(model), images).macs
    if not hasattr(model, "roi_heads"):
        return Counted(tuple(images.shape), params, macs)
    parts, costs = model.roi_heads, []
    for part in ("box", "mask", "keypoint"):
        pool = getattr(parts, f"{part}_roi_pool", None)
        if pool is None:
            costs.append(0)
            continue
        one = torch.zeros(1, model.backbone.out_channels, *pool.output_size, device="meta")
        stages = nn.Sequential(getattr(parts, f"{part}_head"), getattr(parts, f"{part}_predictor"))
        costs.append(count_macs(stages, one).macs)
    return Counted(tuple(images.shape), params, macs, costs[0], costs[1] + costs[2])
