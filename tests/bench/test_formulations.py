"""Each formulation of a layer computes the layer's equations, evaluated in numpy with the same weights."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headcount.bench.formulations import catalog
from headcount.bench.formulations.catalog import FORMULATIONS, formulation
from tests import plain


def arrays(module):
    """Return the weights of a layer by the names of the reference implementation."""
    found = {}
    for name, tensor in module.named_parameters():
        name = name.removeprefix("attention.").replace(".conv.", ".").replace("router.", "router.proj.")
        value = tensor.detach().double().numpy()
        if name.startswith("in_proj_"):
            found |= {f"{one}_proj.{name[8:]}": part for one, part in zip("qkv", np.split(value, 3), strict=True)}
        else:
            # a convolution with a window of 1
            found[name] = value[..., 0] if value.shape[-1] == 1 else value
    return found


NO_MASKS = {"causal": False, **dict.fromkeys(("key_padding_mask", "query_padding_mask", "theta"))}


def mha(a, query, key=None):
    """Eq. 3-5: heads in groups share a head of keys and values."""
    width = len(a["q_proj.weight"]) // catalog.HEADS
    config = SimpleNamespace(
        num_heads=catalog.HEADS, num_kv_heads=len(a["k_proj.weight"]) // width, head_dim=width, router="linear"
    )
    inputs = {"query": query} if key is None else {"query": query, "key": key}
    return plain.mha(a | inputs, config, NO_MASKS, {})[0]


def moa(a, query, key):
    """Eq. 6-12, with gates as the released code has them."""
    config = SimpleNamespace(
        num_experts=catalog.EXPERTS, top_k=catalog.TOP_K, head_dim=catalog.WIDTH, num_kv_heads=1, gates="released",
        noisy=False, balance_loss_weight=0, z_loss_weight=0,
    )  # fmt: skip
    return plain.moa({**a, "query": query, "key": key}, config, NO_MASKS, {})[0]


def vocabulary(a, tokens):
    """Return the logits of a tied output projection."""
    return a["embedding.weight"][tokens] @ a["embedding.weight"].T


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", [one.name for one in FORMULATIONS])
def test_formulation_matches_numpy(name):
    module, inputs = formulation(name).build("cpu")
    with torch.no_grad():
        found = module(**inputs)
    layer = {"mha": mha, "moa": moa, "vocabulary": vocabulary}[name.partition("-")[0]]
    given = {key: value.numpy() for key, value in inputs.items()}
    np.testing.assert_allclose(found, layer(arrays(module), **given), rtol=1e-4, atol=1e-5)
