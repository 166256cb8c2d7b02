"""What the processes of tests/count_models.py import, for the server whose forks they are."""

import gc

import torch

from tests.count_models import count_model
from tests.torchvision_import import import_models

# a fork has no other threads
torch.set_num_threads(1)
import_models()
# they import what most models need
for names in (("transformers", "bert"), ("diffusers", "AutoencoderKL"), ("timm", "resnet18")):
    count_model(*names)
gc.collect()
gc.freeze()
