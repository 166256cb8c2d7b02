"""Mixture of attentive experts: the mixture written out, what the gate sees, and decoding as the full pass."""

import pytest
import torch

from headcount.models.build import build
from headcount.models.configs.mae import MixtureOfAttentiveExpertsConfig
from headcount.models.configs.make import make_config

SIZES = dict(d_model=11, num_heads=3, head_dim=5, gate_width=7)
MODEL = dict(
    model="encoder_decoder", attention="mae", num_heads=3, head_dim=5, gate_width=7,
    d_model=11, d_ff=13, num_encoder_layers=2, num_decoder_layers=2, vocab_size=17,
)  # fmt: skip
GATES = ("running", "memory")


def layer(**fields):
    return build(MixtureOfAttentiveExpertsConfig(**SIZES, **fields), dtype=torch.float64, seed=3)


def drawn(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def gate_of(module, mean):
    hidden = torch.tanh(module.gate.fc1.weight @ mean + module.gate.fc1.bias)
    return torch.softmax(module.gate.fc2.weight @ hidden + module.gate.fc2.bias, dim=0)


def heads_of(module, x, mask=None):
    """Each head's output of one sequence (T, d_m), through its own rows of the output projection: (h, T, d_m)."""
    out = []
    for i in range(3):
        rows = slice(5 * i, 5 * i + 5)
        q, k, v = (x @ p.weight[rows].T + p.bias[rows] for p in (module.q_proj, module.k_proj, module.v_proj))
        scores = q @ k.T / 5**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        out.append(torch.softmax(scores, dim=-1) @ v @ module.out_proj.weight[:, rows].T)
    return torch.stack(out)


def experts_of(heads):
    """f_i = h / (h - 1) times the sum of all heads but i."""
    return [1.5 * sum(heads[j] for j in range(3) if j != i) for i in range(3)]


@torch.no_grad()
def test_output_matches_mixture_of_experts():
    module, x = layer(), drawn(2, 7, 11)
    for one, found in zip(x, module(x), strict=True):
        gate = gate_of(module, one.mean(dim=0))
        assert gate.sum().item() == pytest.approx(1)
        mixed = sum(g * f for g, f in zip(gate, experts_of(heads_of(module, one)), strict=True))
        close(found, mixed + module.out_proj.bias)


@torch.no_grad()
def test_running_gate_reads_past_tokens():
    module, x = layer(gate="running"), drawn(1, 7, 11)
    found = module(x, causal=True)[0]
    experts = experts_of(heads_of(module, x[0], torch.ones(7, 7).triu(1).bool()))
    for t in range(7):
        gate = gate_of(module, x[0, : t + 1].mean(dim=0))
        close(found[t], sum(g * f[t] for g, f in zip(gate, experts, strict=True)) + module.out_proj.bias)


@pytest.mark.parametrize("impl", ["reference", "fused", "auto"])
@pytest.mark.parametrize("gate", ["sequence", *GATES])
@torch.no_grad()
def test_padding_has_no_influence(gate, impl):
    module = layer(gate=gate)
    module.impl = impl
    query, key = drawn(2, 7, 11), drawn(2, 5, 11, seed=2)
    padded, hidden = (torch.arange(n) >= torch.tensor([[n - 2], [n]]) for n in (7, 5))
    found = module(query, key, key_padding_mask=hidden, query_padding_mask=padded)
    module.impl = "reference"
    close(found[0, :5], module(query[:1, :5], key[:1, :3])[0])
    close(found[1], module(query[1:], key[1:])[0])
    assert not found[0, 5:].any()


@pytest.mark.parametrize("sizes", [[1] * 13, [5, 1, 4, 3]], ids=["one-by-one", "chunks"])
@pytest.mark.parametrize("impl", ["reference", "fused"])
@torch.no_grad()
def test_running_gate_decodes_as_forward(impl, sizes):
    module, x = layer(gate="running"), drawn(3, 13, 11)
    expected = module(x, causal=True)
    module.impl = impl
    cache = module.make_cache(3, 13)
    close(torch.cat([module(chunk, cache=cache) for chunk in x.split(sizes, dim=1)], dim=1), expected)
    # keys and values, the sum and the number
    assert cache.num_bytes == 8 * 3 * (2 * 13 * 15 + 11 + 1)


@torch.no_grad()
def test_decoding_ignores_left_padding():
    module, x = layer(gate="running"), drawn(2, 11, 11)
    padding = torch.arange(11) < torch.tensor([[0], [3]])
    cache, pieces = module.make_cache(2, 11), []
    for start, stop in ((0, 2), (2, 6), (6, 11)):
        masks = dict(key_padding_mask=padding[:, :stop], query_padding_mask=padding[:, start:stop])
        pieces.append(module(x[:, start:stop], cache=cache, **masks))
    decoded = torch.cat(pieces, dim=1)
    close(decoded[0], module(x[:1], causal=True)[0])
    close(decoded[1, 3:], module(x[1:, 3:], causal=True)[0])


def translator(gate):
    model = build(make_config(MODEL | dict(causal_gate=gate)), dtype=torch.float64, seed=3)
    generator = torch.Generator().manual_seed(5)
    src, tgt = (torch.randint(17, (3, n), generator=generator) for n in (11, 13))
    return model, src, tgt, torch.arange(11) >= torch.tensor([[11], [7], [2]])


@pytest.mark.parametrize("sizes", [[1] * 13, [7, 1, 1, 1, 3]], ids=["one-by-one", "chunks"])
@pytest.mark.parametrize("gate", GATES)
@torch.no_grad()
def test_encoder_decoder_decodes_as_forward(gate, sizes):
    model, src, tgt, padding = translator(gate)
    expected = model(src, tgt, padding)
    state = model.encode(src, padding, max_len=13)
    close(torch.cat([model.step(state, chunk) for chunk in tgt.split(sizes, dim=1)], dim=1), expected)


def test_non_causal_gate_raises_in_decoding():
    module, x = layer(), drawn(1, 3, 11)
    reason = "^gate=sequence reads tokens that are not made yet; gate=running or gate=memory decodes$"
    with pytest.raises(ValueError, match=reason):
        module(x, causal=True)
    with pytest.raises(ValueError, match=reason):
        module(x, cache=module.make_cache(1, 3))
    with pytest.raises(ValueError, match="^gate=memory without a key needs what layer.of_memory gives$"):
        layer(gate="memory")(x)
