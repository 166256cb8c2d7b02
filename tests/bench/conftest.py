"""Counting runs many small products, on one thread: a second one mostly waits."""

import torch

torch.set_num_threads(1)
