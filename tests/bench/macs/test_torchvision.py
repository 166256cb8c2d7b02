"""Compare torchvision's operation counts with headcount's, row by row.

torchvision.csv has ``num_params`` and ``_ops`` of every weight of torchvision 0.28. One rule: the printed
number is MACs / 10^9 with three digits, of one forward pass over one image, film or pair of images. Two-stage
detectors process as many boxes, and objects with masks or keypoints, as the model's own limits allow.
"""

import csv
import importlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from headcount.bench.count import count_macs
from headcount.bench.trace.names import patched
from tests.torchvision_import import import_models

needs_torchvision = pytest.mark.skipif(not find_spec("torchvision"), reason="the extra torchvision is not installed")
ROWS = list(csv.DictReader(Path(__file__).with_name("torchvision.csv").read_text("utf-8").splitlines()))
SIDE, FRAMES = 512, 16
"""An image before the weights' own preparation, and a film's length (pytorch/vision, test/common_extended_utils.py)."""
DETECTION_SIDES = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
    "keypointrcnn_resnet50_fpn": 1333,
    "ssd300_vgg16": 300,
    "ssdlite320_mobilenet_v3_large": 320,
}
"""Image sizes of detectors whose images are not 800 pixels (test/test_extended_models.py)."""
DIFFERING = {
    "FasterRCNN_MobileNet_V3_Large_FPN_Weights.COCO_V1": "printed without any box",
    "FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1": "printed without any box",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_LEGACY": "printed without any object",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_V1": "printed with 1 object",
    "MaskRCNN_ResNet50_FPN_Weights.COCO_V1": "printed without any object",
}
"""Rows whose printed number is not the count at the model's limits."""


def test_table_is_complete():
    assert Counter(row["kind"] for row in ROWS) == {
        "classification": 115, "detection": 13, "quantization": 14, "segmentation": 6, "video": 10, "optical_flow": 8,
    }  # fmt: skip
    assert len({row["weights"] for row in ROWS}) == 166


@needs_torchvision
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["weights"])
def test_printed_operations_are_counted(row):
    params, macs = count(import_models(), row["kind"], row["model"], row["weights"])
    assert params == int(row["num_params"])
    assert (f"{round(macs / 1e9, 3)}" == row["ops"]) == (row["weights"] not in DIFFERING)


def count(models, kind, name, weights):
    """Return parameters and MACs of a row's model; of a quantised model those of its floating-point original."""
    chosen = models.get_weight(weights)
    if kind == "quantization":
        chosen, name = chosen.meta["unquantized"], name.removeprefix("quantized_")
    model = build(models.get_model_builder(name), chosen)
    params = sum(parameter.numel() for parameter in model.parameters())
    if kind == "detection":
        return params, detector_macs(model, name)
    image = torch.zeros(1, FRAMES, 3, SIDE, SIDE) if kind == "video" else torch.zeros(1, 3, SIDE, SIDE)
    prepare = chosen.transforms()
    inputs = prepare(image, image) if kind == "optical_flow" else (prepare(image),)
    return params, count_macs(model, *(tensor.to("meta") for tensor in inputs)).macs


def build(builder, weights):
    """Return the model on the meta device, without downloading weights."""
    enum = importlib.import_module("torchvision.models._api").WeightsEnum
    with torch.device("meta"), patched(
        (enum, "get_state_dict", lambda *_, **__: {}), (nn.Module, "load_state_dict", lambda *_, **__: None)
    ):  # fmt: skip
        return builder(weights=weights).to("meta").eval()


class Backbone(nn.Module):
    """The backbone and the first head of a detector."""

    def __init__(self, model):
        super().__init__()
        self.backbone, self.head = model.backbone, model.head if hasattr(model, "head") else model.rpn.head

    def forward(self, images):
        features = self.backbone(images)
        return self.head([features] if isinstance(features, torch.Tensor) else list(features.values()))


def detector_macs(model, name):
    """Return the MACs of a detector with as many boxes and objects as the model allows."""
    side = DETECTION_SIDES.get(name, 800)
    images = model.transform([torch.zeros(3, side, side, device="meta")])[0].tensors
    macs = count_macs(Backbone(model), images).macs
    if not hasattr(model, "roi_heads"):
        return macs
    heads = model.roi_heads
    limits = {"box": model.rpn.post_nms_top_n(), **dict.fromkeys(("mask", "keypoint"), heads.detections_per_img)}
    for part, most in limits.items():
        if pool := getattr(heads, f"{part}_roi_pool", None):
            one = torch.zeros(1, model.backbone.out_channels, *pool.output_size, device="meta")
            stages = nn.Sequential(getattr(heads, f"{part}_head"), getattr(heads, f"{part}_predictor"))
            macs += most * count_macs(stages, one).macs
    return macs
