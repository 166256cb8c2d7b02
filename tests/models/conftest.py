"""Layers of a few numbers run on one thread: a second one only waits."""

import torch

torch.set_num_threads(1)
