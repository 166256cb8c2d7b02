"""Operations of torchvision's two-stage detectors, which the table of its other weights leaves out.

A printed number is MACs / 10^9 with three digits, of one image, with as many boxes, and objects with masks or
keypoints, as the model's own limits allow.
"""

import importlib
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from headcount.bench.api.count import count_macs
from headcount.bench.trace.names import patched
from tests.torchvision_import import import_models

needs_torchvision = pytest.mark.skipif(not find_spec("torchvision"), reason="the extra torchvision is not installed")
# weights, side of the image (test/test_extended_models.py of torchvision 0.28), num_params and _ops of their metadata
DETECTORS = [
    ("FasterRCNN_ResNet50_FPN_Weights.COCO_V1", 800, 41755286, 134.38),
    ("FasterRCNN_ResNet50_FPN_V2_Weights.COCO_V1", 800, 43712278, 280.371),
    ("FasterRCNN_MobileNet_V3_Large_FPN_Weights.COCO_V1", 800, 19386354, 4.494),
    ("FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1", 320, 19386354, 0.719),
    ("KeypointRCNN_ResNet50_FPN_Weights.COCO_LEGACY", 1333, 59137258, 133.924),
    ("KeypointRCNN_ResNet50_FPN_Weights.COCO_V1", 1333, 59137258, 137.42),
    ("MaskRCNN_ResNet50_FPN_Weights.COCO_V1", 800, 44401393, 134.38),
    ("MaskRCNN_ResNet50_FPN_V2_Weights.COCO_V1", 800, 46359409, 333.577),
]
DIFFERING = {
    "FasterRCNN_MobileNet_V3_Large_FPN_Weights.COCO_V1": "printed without any box",
    "FasterRCNN_MobileNet_V3_Large_320_FPN_Weights.COCO_V1": "printed without any box",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_LEGACY": "printed without any object",
    "KeypointRCNN_ResNet50_FPN_Weights.COCO_V1": "printed with 1 object",
    "MaskRCNN_ResNet50_FPN_Weights.COCO_V1": "printed without any object",
}
"""Rows whose printed number is not the count at the model's limits."""


@needs_torchvision
@pytest.mark.parametrize("name, side, params, printed", DETECTORS, ids=str)
def test_printed_operations_of_detectors_are_counted(name, side, params, printed):
    model = build(import_models(), name)
    assert sum(parameter.numel() for parameter in model.parameters()) == params
    assert (round(detector_macs(model, side) / 1e9, 3) == printed) == (name not in DIFFERING)


def build(models, name):
    """Return the model of weights on the meta device, without downloading them."""
    weights = models.get_weight(name)
    builder = next(kind for kind in models.list_models() if weights in models.get_model_weights(kind))
    enum = importlib.import_module("torchvision.models._api").WeightsEnum
    with torch.device("meta"), patched(
        (enum, "get_state_dict", lambda *_, **__: {}), (nn.Module, "load_state_dict", lambda *_, **__: None)
    ):  # fmt: skip
        return models.get_model(builder, weights=weights).to("meta").eval()


class Backbone(nn.Module):
    """The backbone and the first head of a detector."""

    def __init__(self, model):
        super().__init__()
        self.backbone, self.head = model.backbone, model.rpn.head

    def forward(self, images):
        return self.head(list(self.backbone(images).values()))


def detector_macs(model, side):
    """Return the MACs of a detector with as many boxes and objects as the model allows."""
    images = model.transform([torch.zeros(3, side, side, device="meta")])[0].tensors
    macs = count_macs(Backbone(model), images).macs
    heads = model.roi_heads
    limits = {"box": model.rpn.post_nms_top_n(), **dict.fromkeys(("mask", "keypoint"), heads.detections_per_img)}
    for part, most in limits.items():
        if pool := getattr(heads, f"{part}_roi_pool", None):
            one = torch.zeros(1, model.backbone.out_channels, *pool.output_size, device="meta")
            stages = nn.Sequential(getattr(heads, f"{part}_head"), getattr(heads, f"{part}_predictor"))
            macs += most * count_macs(stages, one).macs
    return macs
