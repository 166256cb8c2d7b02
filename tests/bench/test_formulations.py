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


def mha(a, query, key=None):
    """Eq. 3-5: heads in groups share a head of keys and values."""
    width, out = len(a["q_proj.weight"]) // catalog.HEADS, np.zeros_like(query)
    shared = len(a["q_proj.weight"]) // len(a["k_proj.weight"])
    for b, rows in enumerate(query):
        k, v = (np.stack([plain.affine(a, name, x) for x in (query if key is None else key)[b]])
                for name in ("k_proj", "v_proj"))  # fmt: skip
        for t, x in enumerate(rows):
            q, heads = plain.affine(a, "q_proj", x), []
            for h in range(catalog.HEADS):
                own, at = (slice(n * width, (n + 1) * width) for n in (h, h // shared))
                heads.append(plain.attend(q[own], k[:, at], v[:, at]))
            out[b, t] = plain.affine(a, "out_proj", np.concatenate(heads))
    return out


def moa(a, query, key):
    """Eq. 6-12, with gates as the released code has them."""
    config = SimpleNamespace(
        num_experts=catalog.EXPERTS, top_k=catalog.TOP_K, head_dim=catalog.WIDTH, num_kv_heads=1, gates="released",
        noisy=False, balance_loss_weight=0, z_loss_weight=0,
    )  # fmt: skip
    masks = {"causal": False, **dict.fromkeys(("key_padding_mask", "query_padding_mask", "theta"))}
    return plain.moa({**a, "query": query, "key": key}, config, masks, {})[0]


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
