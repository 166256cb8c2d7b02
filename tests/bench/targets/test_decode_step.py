"""Decode steps of models with a cache, against formulas by hand at prime sizes."""

import json

import pytest

from headcount.bench.accounts import Assumptions, values
from headcount.bench.commands.count import main
from tests.bench.targets.conftest import LLAMA, write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

D, D_H, FF, V, STORED = 24, 6, 32, 53, 17
T5 = dict(
    model_type="t5", architectures=["T5ForConditionalGeneration"], d_model=D, d_kv=D_H, d_ff=FF, num_layers=1,
    num_decoder_layers=1, num_heads=4, vocab_size=V,
)  # fmt: skip
WEIGHTS = 2 * (2 * D * 4 * D_H + 2 * D * 2 * D_H + 3 * D * FF) + D * V
CODE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def alone(): return nn.Linear(5, 7), (torch.ones(3, 5),)
class Checkpointed(nn.Sequential):
    def forward(self, x): return checkpoint(super().forward, x, use_reentrant=False)
def caching(T=5, numbers=None):
    layers = nn.ModuleList(nn.Linear(5, 7) for _ in range(3))
    for layer in layers[:2]:
        layer.cache_elements = 2 * T * 7 if numbers is None else numbers
    return nn.Sequential(layers[0], nn.Linear(7, 5), layers[1]), (torch.ones(T, 5),)
class Selecting(nn.Linear):
    def forward(self, x): return super().forward(x[torch.nonzero(x[:, 0])[:, 0]])
def selecting(): return Selecting(7, 3), (torch.ones(5, 7),)
def checkpointed(): return Checkpointed(nn.Linear(5, 7), nn.Linear(7, 11)), (torch.ones(3, 5),)
"""


@pytest.fixture
def measure_columns(count, tmp_path):
    (tmp_path / "decoding_net.py").write_text(CODE)

    def measure(target, columns, context=STORED, **request):
        return count(target, columns=columns, context=context, **request).columns

    return measure


def test_columns_of_a_llama_match_formulas(measure_columns):
    lengths = {"seq_len": 5, "batch_size": 3}
    names = ["decode_macs", "decode_bytes", "kv_bytes", "kv_token_bytes", "training_macs", "forward_bytes"]
    found = measure_columns(LLAMA, names, lengths=lengths)
    step = 3 * (WEIGHTS + 2 * 2 * 4 * D_H * STORED)
    stored = 2 * 2 * 2 * D_H
    forward = 3 * (5 * WEIGHTS + 2 * 2 * 4 * D_H * 5 * 5)
    assert found == {
        "decode_macs": step, "kv_bytes": 3 * STORED * stored * 2, "kv_token_bytes": stored * 2,
        # recomputed scores of fused attention are not gradients
        "training_macs": 3 * forward,
        # weights, norms and a row of the embedding for each token, then the cache read, and written at one token
        "decode_bytes": 2 * (WEIGHTS + 5 * D + 3 * D + 3 * (STORED + 1) * stored),
        "forward_bytes": 2 * (WEIGHTS + 5 * D + 15 * D),
    }  # fmt: skip


def test_bytes_and_training_macs_of_a_layer(measure_columns):
    found = measure_columns("decoding_net.py:alone", ["forward_bytes", "training_macs"])
    assert found == {"forward_bytes": 2 * (5 * 7 + 7 + 3 * 5 + 3 * 7), "training_macs": 3 * 105}
    for modes in {}, {"backward": True}, {"backward": True, "training": True}:
        found = measure_columns("decoding_net.py:checkpointed", ["training_macs"], **modes)
        assert found == {"training_macs": 3 * (105 + 231)}


@pytest.mark.parametrize("modes", [{}, {"backward": True}, {"backward": True, "training": True}], ids=str)
def test_columns_of_the_forward_pass_beside_a_backward_pass(count, modes):
    names = ["causal_macs", "forward_bytes", "training_macs", "decode_macs"]
    found = count(LLAMA, columns=names, lengths={"seq_len": 5, "batch_size": 3}, **modes)
    causal = 3 * (5 * WEIGHTS + 2 * 2 * 4 * D_H * 15)
    assert found.columns["causal_macs"] == causal and found.columns["training_macs"] > 2 * causal
    per_token, missing = values(["macs_per_token", "macs_per_sample"], found, Assumptions())
    if modes:
        reason = "it is of the forward pass alone, and the count has the backward pass too"
        assert missing == dict.fromkeys(per_token, reason)
    else:
        assert per_token == {"macs_per_token": WEIGHTS + 2 * 4 * D_H * 5 * 2, "macs_per_sample": found.macs // 3}


def test_decode_step_of_an_encoder_decoder(measure_columns):
    found = measure_columns(T5, ["decode_macs"], lengths={"seq_len": 11, "batch_size": 2})
    # keys and values of the encoder are in the cache
    step = 6 * D * 4 * D_H + 2 * 4 * D_H * (STORED + 11) + 2 * D * FF + D * V
    assert found == {"decode_macs": 2 * step}


@pytest.mark.parametrize(
    ("spec", "options", "part"),
    [
        ("decoding_net.py:alone", {}, "Linear takes input"),
        (LLAMA, {"lengths": {"seq_len": 5}, "context": 1}, "at least 2"),
        ({**LLAMA, "model_type": "bert", "architectures": ["BertModel"]}, {"lengths": {"seq_len": 5}}, "returned no"),
    ],
)
def test_model_without_steps_has_a_reason(measure_columns, spec, options, part):
    found = measure_columns(spec, ["decode_macs", "decode_bytes", "forward_bytes"], **options)
    assert found["decode_macs"] == found["decode_bytes"] and part in found["decode_macs"].reason
    assert found["forward_bytes"] > 0


def test_columns_of_a_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, LLAMA)
    names = ["macs_per_token", "macs_per_sample", "training_state_bytes", "decode_macs", "generate_macs", "intensity"]
    words = ["config.json", "--seq-len", "5", "--columns", *names, "saved_bytes", "--context", str(STORED)]
    assert main([*words, "--format", "json"]) == 0
    tables = {table["name"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    (row,) = tables["memory"]["rows"]
    forward, params = 5 * WEIGHTS + 2 * 2 * 4 * D_H * 5 * 5, WEIGHTS + V * D + 5 * D
    assert [row[name] for name in names[:4]] == [forward / 5, forward, 16 * params, WEIGHTS + 2 * 2 * 4 * D_H * STORED]
    # of the closed form: a step for each number of stored tokens
    steps = STORED * WEIGHTS + 2 * 2 * 4 * D_H * STORED * (STORED + 1) // 2
    assert row["generate_macs"] == steps and row["missing"] == {} and row["saved_bytes"] > 0


def test_cache_of_own_layers_is_what_they_state(measure_columns):
    """The sum over modules, in bytes of cached numbers; nothing else about a step is known of them."""
    target, names = "decoding_net.py:caching", ["kv_bytes", "decode_macs"]
    found = measure_columns(target, names, context=None)
    assert found["kv_bytes"] == 2 * (2 * 5 * 7) * 2 and "cache_elements" in found["decode_macs"].reason
    assert measure_columns(target, names, context=None, settings={"T": 11})["kv_bytes"] == 2 * (2 * 11 * 7) * 2
    assert "without --context" in measure_columns(target, names)["kv_bytes"].reason
    for wrong in (-1, 2.5, True):
        reason = measure_columns(target, names, context=None, settings={"numbers": wrong})["kv_bytes"].reason
        assert reason == f"cache_elements of Linear must be a whole number of at least 0, not {wrong!r}"
    assert "cache_elements" in measure_columns("decoding_net.py:alone", names, context=None)["kv_bytes"].reason


def test_module_that_fails_on_meta_is_measured_where_it_is_counted(measure_columns):
    found = measure_columns("decoding_net.py:selecting", ["training_macs", "saved_bytes", "peak_forward_bytes"])
    # all 5 tokens are selected, and copied before the product of 7 x 3
    assert found["training_macs"] == 3 * 5 * 7 * 3
    assert found["saved_bytes"] == 2 * (5 * 7 + 5 * 3)
    assert isinstance(found["peak_forward_bytes"], int)
