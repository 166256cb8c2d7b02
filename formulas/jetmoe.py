"""Closed form of JetMoE (arXiv 2404.07413): LLaMA's layers with experts in attention and feed-forward blocks.

The outputs of the attention experts have biases, and the output layer is tied to the embedding.
"""

from functools import partial

from headcount.formulas import llama

CAUSAL_PATHS = llama.CAUSAL_PATHS
"""Paths of the attention whose mask is causal."""
model = partial(llama.model, output_bias=True, tied=True)
