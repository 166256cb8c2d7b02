"""Memory and decoding: the ledger's figures against real caches, counters and live tensors, with ==."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import memory, tally
from bench.macs import main
from bench.memory import Assumptions, Subject
from models.build import build, example_inputs
from models.config import make_config

LAYERS = {
    "mha": dict(attention="mha", d_model=21, num_heads=3, head_dim=7),
    "gqa": dict(attention="mha", d_model=13, num_heads=6, num_kv_heads=3, head_dim=5),
    "mqa": dict(attention="mha", d_model=13, num_heads=5, num_kv_heads=1, head_dim=7, bias=False),
    "moa": dict(attention="moa", d_model=13, num_experts=11, top_k=3, head_dim=5),
    "moa-one-slot": dict(attention="moa", d_model=17, num_experts=5, top_k=1, head_dim=7, renormalise=False),
}
TRANSLATION = dict(model="encoder_decoder", d_ff=29, num_encoder_layers=3, num_decoder_layers=2, vocab_size=41)


def lengths(batch, tgt, src=None):
    return {"batch_size": batch, "tgt_len": tgt, "src_len": src or tgt}


def counted(call):
    with FlopCounterMode(display=False) as mode:
        call()
    assert mode.get_total_flops() % 2 == 0
    return mode.get_total_flops() // 2


@pytest.mark.parametrize("dtype, element_bytes", [(torch.float32, 4), (torch.bfloat16, 2)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_cache_holds_the_predicted_bytes(name, dtype, element_bytes):
    config = make_config(LAYERS[name])
    layer = build(config, dtype=dtype)
    subject = Subject(config, lengths(2, 11), Assumptions(element_bytes=element_bytes))
    cache = layer.make_cache(2, 13)
    x = example_inputs(config, lengths(2, 11), dtype=dtype)["query"]
    with torch.no_grad():
        layer(x[:, :7], causal=True, cache=cache)
        seven = cache.num_bytes
        layer(x[:, 7:], causal=True, cache=cache)
    assert cache.num_bytes == memory.kv_bytes(subject)
    assert cache.num_bytes - seven == (11 - 7) * 2 * memory.kv_token_bytes(subject)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_decode_steps_cost_the_predicted_macs(name):
    config = make_config(LAYERS[name])
    layer, subject = build(config), Subject(config, lengths(3, 7), Assumptions())
    cache, x = layer.make_cache(3, 7), example_inputs(config, lengths(3, 7))["query"]
    each = []
    with torch.no_grad():
        for i in range(7):
            each.append(counted(lambda i=i: layer(x[:, i : i + 1], causal=True, cache=cache)))
    assert each[-1] == memory.ACCOUNTS["decode_macs"].value(subject)
    assert sum(each) == memory.generate_macs(subject)


@pytest.mark.parametrize("name", ["mha", "gqa", "moa"])
def test_a_translation_models_cache_and_steps(name):
    config = make_config(TRANSLATION | LAYERS[name] | dict(d_model=22))
    model = build(config)
    subject = Subject(config, lengths(2, 5, 17), Assumptions())
    source, target = example_inputs(config, lengths(2, 5, 17)).values()
    states, each = [], []
    prefill = counted(lambda: states.append(model.encode(source, max_len=5)))
    for i in range(5):
        each.append(counted(lambda i=i: model.step(states[0], target[:, i : i + 1])))
    held = sum(part.num_bytes for layer in states[0].caches for part in layer)
    assert held == memory.kv_bytes(subject)
    assert prefill == subject.prefill().macs
    assert each[-1] == memory.ACCOUNTS["decode_macs"].value(subject)
    assert prefill + sum(each) == memory.generate_macs(subject)


@pytest.mark.parametrize("name", ["mha", "gqa", "moa"])
def test_a_training_step_costs_three_forwards(name):
    config = make_config(TRANSLATION | LAYERS[name] | dict(d_model=22))
    model, inputs = build(config).train(), example_inputs(config, lengths(2, 5, 17))
    subject = Subject(config, lengths(2, 5, 17), Assumptions())
    assert counted(lambda: model(**inputs).sum().backward()) == memory.training_macs(subject)


def test_the_tally_sees_what_is_live_and_no_views():
    x = torch.ones(7)

    def call():
        a = x + 1
        del a
        b = (x + 2).view(1, 7)
        return b + b

    assert tally.peak_bytes(call, [x]) == 2 * 7 * 4
    assert tally.peak_bytes(lambda: x, [x]) == 0


CLOSED = ["--counter", "closed-form"]


def run(capsys, *argv):
    try:
        code = main([*argv, *CLOSED])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def test_columns_join_a_grid(capsys):
    argv = ["--grid", "K=2 E=5 D=7 d_m=11 T=13 B=2", "--format", "json", "--element-bytes", "2", "--context", "17"]
    code, out, _ = run(capsys, *argv, "--columns", "kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs")
    (row,) = json.loads(out)["tables"][0]["rows"]
    assert code == 0
    assert (row["kv_bytes"], row["kv_token_bytes"]) == (2 * 17 * 2 * 7 * 2, 2 * 7 * 2)

    def step(stored):
        return 2 * (11 * 5 + 2 * 2 * 11 * 7 + 2 * 11 * 7 + 2 * 2 * stored * 7)

    assert row["decode_macs"] == step(17)
    assert row["generate_macs"] == sum(step(stored) for stored in range(1, 18))


def test_columns_join_a_table_and_a_preset(capsys):
    _, out, _ = run(capsys, "--table", "moa-table3", "--columns", "kv_bytes", "--format", "csv")
    assert out.splitlines()[0].endswith(",macs,kv_bytes,verdict,notes")
    argv = ["--preset", "moa-8K8E128D", "--columns", "kv_bytes", "decode_bound", "--peak-macs", "2e9"]
    _, out, _ = run(capsys, *argv, "--bandwidth", "1e9", "--format", "csv")
    assert out.rstrip().splitlines()[-2:] == ["preset,kv_bytes,decode_bound", f"moa-8K8E128D,{4 * 20 * 6 * 256},memory"]
    _, out, _ = run(capsys, *argv, "--bandwidth", "1e11", "--format", "csv")
    assert out.rstrip().endswith("compute")


def test_a_model_that_does_not_decode_has_a_dash(capsys):
    names = ["kv_bytes", "kv_token_bytes", "decode_macs", "generate_macs", "generate_bytes", "peak_forward_bytes"]
    _, out, _ = run(capsys, "--preset", "mlm-transformer", "--columns", *names)
    assert out.rstrip().splitlines()[-2].count("–") == len(names)


WRONG = {
    "unknown": (["--columns", "kv"], "unknown column 'kv'; choose from kv_token_bytes, kv_bytes"),
    "twice": (["--columns", "kv_bytes", "kv_bytes"], "a column is given twice in kv_bytes, kv_bytes"),
    "no peaks": (["--columns", "decode_bound", "--peak-macs", "1"], "decode_bound needs --peak-macs and --bandwidth"),
    "no columns": (["--context", "7"], "--context go with --columns"),
    "zero": (["--columns", "kv_bytes", "--element-bytes", "0"], "--element-bytes must be at least 1, not 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_columns_are_one_line(case, capsys):
    argv, message = WRONG[case]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("which", ["forward", "training"])
def test_the_column_is_the_peak_of_live_tensors(which, name):
    config = make_config(LAYERS[name])
    layer, x = build(config).train(which == "training"), example_inputs(config, lengths(3, 11))["query"]
    gradient = torch.ones_like(x)

    def call():
        with torch.set_grad_enabled(which == "training"):
            out = layer(x)
            if which == "training":
                out.backward(gradient)

    subject = Subject(config, lengths(3, 11), Assumptions())
    assert tally.peak_bytes(call, [x, gradient, *layer.parameters()]) == (
        memory.ACCOUNTS[f"peak_{which}_bytes"].value(subject)
    )


def test_what_has_no_schedule_has_no_peak():
    for options in (dict(bias=True), dict(noisy=True), dict(head_dim=1)):
        config = make_config(LAYERS["moa"] | options)
        assert memory.ACCOUNTS["peak_training_bytes"].value(Subject(config, lengths(3, 11), Assumptions())) is None


def test_bytes_that_steps_move():
    config = make_config(LAYERS["mqa"])
    subject = Subject(config, lengths(3, 11), Assumptions(context=13, generate=5, element_bytes=2))
    weights = 2 * 13 * 35 + 2 * 13 * 7

    def step(stored):
        return 2 * (weights + 3 * 2 * 7 * stored + 3 * 2 * 7)

    assert memory.ACCOUNTS["decode_bytes"].value(subject) == step(13)
    assert memory.generate_bytes(subject) == sum(step(stored) for stored in range(1, 6))
