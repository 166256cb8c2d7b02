"""With dense attention the models are PyTorch's own post-norm Transformer layers with the same weights."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.encoder_decoder import sinusoidal_positions
from tests.cases import randomise

SIZES = {"attention": "mha", "d_model": 15, "num_heads": 3, "d_ff": 17, "vocab_size": 19}
LENGTHS = {"batch_size": 2, "src_len": 7, "tgt_len": 5, "seq_len": 7}


def make(**fields):
    config = make_config({**SIZES, **fields})
    return randomise(build(config, dtype=torch.float64)), example_inputs(config, LENGTHS)


def torch_layer(cls, layer, activation):
    """Return PyTorch's layer of class ``cls`` with the weights of ``layer``."""
    out = cls(15, 3, 17, dropout=0.0, activation=activation, batch_first=True, dtype=torch.float64)
    norms = {"norm1": layer.self_attn_norm, "norm2": layer.feed_forward_norm}
    attentions = {"self_attn": layer.self_attn}
    if cls is nn.TransformerDecoderLayer:
        norms = {"norm1": layer.self_attn_norm, "norm2": layer.cross_attn_norm, "norm3": layer.feed_forward_norm}
        attentions["multihead_attn"] = layer.cross_attn
    state = {}
    for prefix, module in (norms | {"linear1": layer.feed_forward.fc1, "linear2": layer.feed_forward.fc2}).items():
        state |= {f"{prefix}.{name}": parameter for name, parameter in module.named_parameters()}
    for prefix, attention in attentions.items():
        for name in ("weight", "bias"):
            inputs = [getattr(module, name) for module in (attention.q_proj, attention.k_proj, attention.v_proj)]
            state[f"{prefix}.in_proj_{name}"] = torch.cat(inputs)
            state[f"{prefix}.out_proj.{name}"] = getattr(attention.out_proj, name)
    out.load_state_dict(state)
    return out


def test_encoder_decoder_matches_torch():
    model, inputs = make(model="encoder_decoder", num_encoder_layers=2, num_decoder_layers=3)
    table = model.embedding.weight
    embedded = [table[x] * math.sqrt(15) + sinusoidal_positions(x.shape[1], 15).double() for x in inputs.values()]
    memory, x = embedded
    for layer in model.encoder.layers:
        memory = torch_layer(nn.TransformerEncoderLayer, layer, "relu")(memory)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for layer in model.decoder.layers:
        x = torch_layer(nn.TransformerDecoderLayer, layer, "relu")(x, memory, tgt_mask=causal)
    torch.testing.assert_close(model(**inputs), x @ table.T, rtol=1e-9, atol=1e-9)


def test_masked_lm_matches_torch():
    model, inputs = make(model="masked_lm", num_layers=3, max_positions=11)
    table, tokens = model.embedding.weight, inputs["tokens"]
    x = model.embedding_norm(table[tokens] + model.position_embedding.weight[2:9])
    for layer in model.encoder.layers:
        x = torch_layer(nn.TransformerEncoderLayer, layer, "gelu")(x)
    head = model.lm_head
    x = head.norm(F.gelu(x @ head.dense.weight.T + head.dense.bias))
    torch.testing.assert_close(model(**inputs), x @ table.T + head.output_proj.bias, rtol=1e-9, atol=1e-9)
