"""JetMoE (arXiv 2404.07413): LLaMA's layers with attention experts and feed-forward experts, and a tied output."""

from functools import partial

from headcount.formulas import llama

CAUSAL_PATHS = llama.CAUSAL_PATHS
model = partial(llama.model, output_bias=True, tied=True)
