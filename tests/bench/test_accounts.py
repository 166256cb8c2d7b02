"""Memory and decoding in closed form equal real caches and counters."""

from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headcount.bench import accounts
from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case
from headcount.bench.counting.result import Count
from headcount.bench.errors import UsageError
from headcount.formulas.ledger import Ledger
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from tests.cases import MAE, MODEL_FIELDS, cache_bytes, configurations

MOH = dict(attention="moh", d_model=35, num_heads=10, num_shared_heads=2, top_k=3, num_kv_heads=5, head_dim=14)
EDGES = {
    "mqa": dict(attention="mha", d_model=35, num_heads=5, num_kv_heads=1, head_dim=14, bias=False),
    "moa-one-slot": dict(attention="moa", d_model=35, num_experts=5, top_k=1, head_dim=14),
    "mla-query-latent": dict(attention="mla", d_model=35, num_heads=3, head_dim=14, rotary_dim=2, value_dim=7)
    | dict(kv_rank=11, query_rank=17, bias=True),
    "moh-mqa-one-shared": MOH | dict(num_shared_heads=1, num_kv_heads=1, form="ideal"),
    "moh-all-shared": MOH | dict(num_shared_heads=10, top_k=0, form="ideal"),
    "moh-none-shared": MOH | dict(num_shared_heads=0, form="ideal"),
    "mae-running": dict(attention="mae", d_model=35, num_heads=5, head_dim=7, gate_width=11)
    | dict(gate="running", causal_gate="running"),
}
DECODING = {name: config for name, config in configurations("form", "router") if not config.no_step}
DECODING |= {name: make_config(values) for name, values in EDGES.items()}
UNEVEN = MOH | dict(num_heads=(10, 4, 10), num_kv_heads=(5, 4, 2), num_shared_heads=(2, 1, 10), top_k=(3, 2, 0))
LLAMA = dict(model="llama", d_ff=19, num_layers=2, vocab_size=29)
TRANSLATION = dict(model="encoder_decoder", d_ff=29, num_encoder_layers=2, num_decoder_layers=1, vocab_size=41)


def in_model(model, config):
    """Return ``model`` with the attention of ``config``."""
    return make_config(model | {"attention": config.variant} | asdict(config))


LANGUAGE = {name: in_model(LLAMA, config) for name, config in DECODING.items() if config.rotary}
LANGUAGE |= {name: make_config(MODEL_FIELDS[name]) for name in ("jetmoe", "deepseek", "decoder-learned")}
LANGUAGE |= {
    f"uneven-{form}": make_config(LLAMA | UNEVEN | dict(form=form, num_layers=3)) for form in ("released", "ideal")
}
CACHED = {name: in_model(TRANSLATION, config) for name, config in configurations() if not hasattr(config, "side")}


def lengths(batch, tgt, src=None):
    return {"batch_size": batch, "tgt_len": tgt, "src_len": src or tgt}


FLOATS = Assumptions(element_bytes=4)


def value(name, case, given=FLOATS):
    found, missing = accounts.values([name], case, given)
    assert not missing
    return found[name]


def remakes_keys(config):
    """Return whether a decode step computes the keys and values of all stored tokens again."""
    return config.variant == "mla" and config.form == "released"


def count(call):
    with FlopCounterMode(display=False) as mode:
        call()
    assert mode.get_total_flops() % 2 == 0
    return mode.get_total_flops() // 2


@pytest.mark.parametrize("name", DECODING)
def test_layer_cache_and_macs(name):
    layer, case = build(DECODING[name]), Case(name, DECODING[name], lengths(3, 5))
    cache, x = layer.make_cache(3, 11), example_inputs(case.config, case.lengths)["query"]
    each, stored = [], []
    with torch.no_grad():
        for i in range(5):
            each.append(count(lambda i=i: layer(x[:, i : i + 1], cache=cache)))
            stored.append(cache_bytes(cache))
    assert stored[-1] == value("kv_bytes", case) == 2 * value("kv_bytes", case, Assumptions(element_bytes=2))
    assert stored[-1] - stored[-2] == 3 * value("kv_token_bytes", case)
    assert each[-1] == value("decode_macs", case)
    assert sum(each) == value("generate_macs", case)
    # steps and a causal mask have the same pairs of a query and a key
    assert remakes_keys(case.config) or sum(each) == value("causal_macs", case)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_model_cache_and_macs(name):
    model, case = build(LANGUAGE[name]), Case(name, LANGUAGE[name], {"batch_size": 3, "seq_len": 5})
    (tokens,) = example_inputs(case.config, case.lengths).values()
    caches, each, stored = model.make_caches(3, 5), [], []
    with torch.no_grad():
        for i in range(5):
            each.append(count(lambda i=i: model(tokens[:, i : i + 1], caches=caches)))
            stored.append(cache_bytes(*caches))
    assert stored[-1] == value("kv_bytes", case)
    assert stored[0] == 3 * value("kv_token_bytes", case)
    assert each[-1] == value("decode_macs", case)
    assert sum(each) == value("generate_macs", case)
    assert remakes_keys(case.config.attention) or sum(each) == value("causal_macs", case)
    caches = model.make_caches(3, 5)
    with torch.no_grad():
        assert count(lambda: model(tokens, caches=caches)) == accounts.step(case, 5, 5).macs == case.ledger.macs


@pytest.mark.parametrize("router", ["linear", "query_norm"])
@pytest.mark.parametrize("shared, routed", [(2, 3), (10, 0), (0, 3)])
@torch.no_grad()
def test_ideal_step_reads_predicted_weights(router, shared, routed):
    """With one sequence and a key/value head for every head, the number of read heads does not depend on routing."""
    config = make_config(
        MOH | dict(num_shared_heads=shared, top_k=routed, num_kv_heads=10, form="ideal", router=router)
    )
    layer, h, d_h, d_m = build(config, dtype=torch.float64), 10, 14, 35
    cache, x = layer.make_cache(1, 11), example_inputs(config, lengths(1, 11), dtype=torch.float64)["query"]
    layer(x[:, :10], cache=cache)
    expected = layer(x, causal=True)[:, 10:]
    routed = []
    layer.router.register_forward_hook(lambda module, inputs, gates: routed.append(gates[0]))
    layer(x[:, 10:], cache=cache)
    heads = sorted(set(routed[0].flatten().tolist()))
    # heads set to nan are not read: the step is the same
    unused = [head for head in range(h) if head not in heads]
    layer.out_proj.weight.view(d_m, h, d_h)[:, unused] = torch.nan
    if config.router == "linear":
        layer.q_proj.weight.view(h, d_h, d_m)[unused] = torch.nan
    for stored in (cache.key, cache.value):
        stored[:, :, unused] = torch.nan
    cache.length -= 1
    assert torch.allclose(layer(x[:, 10:], cache=cache), expected)
    used = len(heads)
    q_heads = used if config.router == "linear" else h
    routers = sum(parameter.numel() for parameter in layer.router.parameters())
    weights = routers + (q_heads + used) * d_h * d_m + 2 * h * d_h * d_m
    elements = weights + 2 * 11 * used * d_h + 2 * h * d_h
    assert value("decode_bytes", Case("case", config, lengths(1, 11))) == 4 * elements


@pytest.mark.parametrize("name", CACHED)
def test_translation_model_cache_and_macs(name):
    config = CACHED[name]
    model, case = build(config), Case(name, config, lengths(2, 3, 11))
    source, target = example_inputs(config, case.lengths).values()
    states, each = [], []
    prefill = count(lambda: states.append(model.encode(source, max_len=3)))
    for i in range(3):
        each.append(count(lambda i=i: model.step(states[0], target[:, i : i + 1])))
    assert cache_bytes(*states[0].caches) == value("kv_bytes", case)
    assert prefill == value("prefill_macs", case) == value("prefill_last_macs", case)
    assert each[-1] == value("decode_macs", case)
    assert prefill + sum(each) == value("generate_macs", case)
    assert remakes_keys(config.attention) or prefill + sum(each) == value("causal_macs", case)
    backward = count(lambda: model.train()(source, target).sum().backward())
    assert backward == value("training_macs", case)


def test_forward_bytes_and_roofline():
    case, two = Case("mqa", DECODING["mqa"], lengths(3, 11)), Assumptions(element_bytes=2)
    weights, both = 2 * 35 * 70 + 2 * 35 * 14, 2 * 3 * 11 * 35
    macs = 3 * (11 * weights + 2 * 5 * 11 * 11 * 14)
    assert value("forward_bytes", case, two) == 2 * (weights + both)
    assert value("forward_intensity", case, two) == Fraction(macs, 2 * (weights + both))
    crossed = Case("crossed", case.config, lengths(3, 11, 17))
    assert value("forward_bytes", crossed) == 4 * (weights + both + 3 * 17 * 35)
    for bandwidth, side in ((2 * (weights + both), "compute"), (2 * (weights + both) - 1, "memory")):
        given = Assumptions(element_bytes=2, peak_macs_per_s=macs, bytes_per_s=bandwidth)
        assert value("forward_bound", case, given) == side
    model = LANGUAGE["uneven-released"]
    weights = sum(p.numel() for p in build(model).parameters()) - 29 * 35 + 2 * 7 * 35
    assert value("forward_bytes", Case("moh", model, {"batch_size": 2, "seq_len": 7})) == 4 * weights


def test_decode_bytes():
    case, given = Case("mqa", DECODING["mqa"], lengths(3, 11)), Assumptions(context=13, generate=5)
    weights = 2 * 35 * 70 + 2 * 35 * 14

    def step(stored):
        return 2 * (weights + 3 * 2 * 14 * stored + 3 * 2 * 14)

    assert value("decode_bytes", case, given) == step(13)
    assert value("generate_bytes", case, given) == sum(step(stored) for stored in range(14, 19))
    for empty, last in ((Assumptions(generate=5), 5), (Assumptions(context=13), 13), (Assumptions(), 11)):
        assert value("generate_bytes", case, empty) == sum(step(stored) for stored in range(1, last + 1))


@pytest.mark.parametrize("name", LANGUAGE)
def test_generation_goes_on_after_a_given_context(name):
    """Steps after 4 stored tokens and the steps before them are the steps into an empty cache."""
    case = Case(name, LANGUAGE[name], {"batch_size": 3, "seq_len": 5})
    for column, step in (("generate_macs", "decode_macs"), ("generate_bytes", "decode_bytes")):
        alone = [value(step, case, Assumptions(context=stored)) for stored in range(1, 8)]
        assert value(column, case, Assumptions(context=4, generate=3)) == sum(alone[4:])
        assert value(column, case, Assumptions(generate=7)) == sum(alone)


@pytest.mark.parametrize("name", ["mqa", "moa-one-slot", "jetmoe"])
def test_bytes_by_what_a_number_is(name):
    """Halving the bytes of weights and of cached numbers takes away half of what each of them has."""
    sizes = {"batch_size": 2, "seq_len": 5} if name == "jetmoe" else lengths(2, 5)
    case = Case(name, LANGUAGE[name] if name == "jetmoe" else DECODING[name], sizes)
    whole = Assumptions(element_bytes=4)
    int8, fp8 = replace(whole, weight_bytes=1), replace(whole, cache_bytes=1)
    cached = value("kv_bytes", case, whole)
    assert 4 * value("kv_bytes", case, fp8) == cached == value("kv_bytes", case, int8)
    assert value("saved_bytes", case, int8) == value("saved_bytes", case, fp8) == value("saved_bytes", case, whole)
    for column in ("decode_bytes", "generate_bytes"):
        parts = [value(column, case, whole) - value(column, case, given) for given in (int8, fp8)]
        assert 4 * sum(parts) == 3 * value(column, case, whole)


def test_weights_of_int4_and_cache_of_fp8():
    case = Case("mqa", DECODING["mqa"], lengths(3, 11))
    given = Assumptions(weight_bytes=Fraction(1, 2), cache_bytes=1)
    weights = 2 * 35 * 70 + 2 * 35 * 14
    assert value("decode_bytes", case, given) == weights // 2 + 3 * 2 * 14 * 12
    assert value("forward_bytes", case, given) == weights // 2 + 2 * 2 * 3 * 11 * 35


def test_a_part_of_a_byte_is_no_value():
    config = make_config(dict(attention="mha", d_model=5, num_heads=1, head_dim=3, num_kv_heads=1, bias=False))
    given = Assumptions(weight_bytes=Fraction(3, 8))
    found, missing = accounts.values(["kv_bytes", "decode_bytes"], Case("odd", config, lengths(1, 7)), given)
    assert found == {"kv_bytes": 2 * 7 * 2 * 3, "decode_bytes": None}
    assert missing == {"decode_bytes": "118.500 bytes are no whole number"}


def test_macs_per_token_and_sample():
    late = Case("late", DECODING["mqa"], lengths(3, 11, 17))
    macs = 3 * (11 * 2 * 35 * 70 + 17 * 2 * 35 * 14 + 2 * 5 * 11 * 17 * 14)
    assert value("macs_per_token", late) == Fraction(macs, 3 * 11)
    assert value("macs_per_sample", late) == macs // 3 and value("macs_per_sample", late) * 3 == macs


def test_prefill_macs_read_the_prompt():
    config = LANGUAGE["mqa"]
    model, case, prompt = build(config), Case("llama", config, {"batch_size": 3, "seq_len": 7}), Assumptions(context=11)
    (tokens,) = example_inputs(config, {"batch_size": 3, "seq_len": 11}).values()
    with torch.no_grad():
        assert value("prefill_macs", case, prompt) == count(lambda: model(tokens, caches=model.make_caches(3, 11)))
    layer = Case("mqa", DECODING["mqa"], lengths(3, 7))
    assert value("prefill_macs", layer, prompt) == 3 * (11 * (2 * 35 * 70 + 2 * 35 * 14) + 2 * 5 * 11 * 11 * 14)


@pytest.mark.parametrize("name", LANGUAGE)
def test_prefill_with_the_last_logits(name):
    """It is a prefill without the output layer, and one row of that: V = 29 or the model's, d_m = the model's."""
    config = LANGUAGE[name]
    case, prompt = Case(name, config, {"batch_size": 3, "seq_len": 7}), Assumptions(context=11)
    row = config.attention.d_model * config.vocab_size
    assert value("prefill_macs", case, prompt) - value("prefill_last_macs", case, prompt) == 3 * 10 * row
    layer = Case("mqa", DECODING["mqa"], lengths(3, 7))
    assert value("prefill_last_macs", layer, prompt) == value("prefill_macs", layer, prompt)


@pytest.mark.parametrize("name, column", [
    ("images", "prefill_macs"), ("images", "prefill_last_macs"), ("images", "macs_per_token"),
    ("images", "decode_macs"), ("dit", "prefill_macs"),
    ("masked-mha", "windowed_macs"), ("masked-mha", "causal_macs"), ("dit", "causal_macs"), ("images", "causal_macs"),
    ("light", "causal_macs"), ("more-queries", "causal_macs"), ("sequence-gate", "causal_macs"),
    ("more-queries", "training_recompute_macs"), ("more-queries", "saved_recompute_bytes"),
])  # fmt: skip
def test_accounts_without_a_value(name, column):
    layers = {"more-queries": DECODING["mqa"], "sequence-gate": make_config(MAE | dict(d_model=22))}
    config = layers.get(name) or make_config(MODEL_FIELDS[name])
    case = Case(name, config, {n: 7 if n == "tgt_len" else 2 for n in config.lengths})
    found, missing = accounts.values([column], case, Assumptions(window=3))
    assert found[column] is None and missing[column]


@pytest.mark.parametrize("tgt, src, window", [(13, 13, 5), (13, 13, 1), (3, 11, 5), (3, 11, 10), (7, 7, 17)])
def test_causal_and_windowed_macs_keep_a_band(tgt, src, window):
    case = Case("mqa", DECODING["mqa"], lengths(2, tgt, src))
    seen, late = (np.tril(np.ones((tgt, src)), k=src - tgt - first) for first in (0, window))
    for name, pairs in (("causal_macs", seen), ("windowed_macs", seen - late)):
        hidden = tgt * src - int(pairs.sum())
        assert case.ledger.macs - value(name, case, Assumptions(window=window)) == 2 * 2 * 5 * 14 * hidden


def test_windowed_macs_need_a_window():
    found, missing = accounts.values(["windowed_macs"], Case("mqa", DECODING["mqa"], lengths(2, 7)), FLOATS)
    assert found == {"windowed_macs": None} and "--window" in missing["windowed_macs"]


@pytest.mark.parametrize("recipe, trained, frozen", [("adamw-mixed", 16, 2), ("adamw", 16, 4), ("sgd", 8, 4)])
def test_training_state_bytes(recipe, trained, frozen):
    config = make_config(MODEL_FIELDS["dit"])
    parameters = [(p.numel(), p.requires_grad) for p in build(config).parameters()]
    expected = sum(number * (trained if requires_grad else frozen) for number, requires_grad in parameters)
    given = Assumptions(optimizer=recipe)
    assert value("training_state_bytes", Case("dit", config, {"batch_size": 2}), given) == expected
    assert accounts.statement(["training_state_bytes"], given).count(f"{recipe}: ") == 1


def test_training_with_recomputed_layers():
    config = LANGUAGE["mqa"]
    case = Case("llama", config, {"batch_size": 3, "seq_len": 7})
    output = 3 * 7 * 35 * 29
    assert value("training_recompute_macs", case) == 4 * (case.ledger.macs - output) + 3 * output


def test_other_flops_by_hand():
    config = make_config(dict(attention="mha", d_model=35, num_heads=5, head_dim=14, bias=True))
    softmax, bias = 3 * 5 * 7 * 11, 3 * (7 * 70 + 2 * 11 * 70 + 7 * 35)
    case = Case("mha", config, lengths(3, 7, 11))
    assert value("softmax_flops", case) == 3 * softmax
    assert value("other_flops", case) == 3 * softmax + bias
    assert value("norm_flops", case) == 0 and value("elementwise_flops", case) == bias
    twice = Assumptions(prices={kind: 2 * price for kind, price in FLOATS.prices.items()})
    assert value("other_flops", case, twice) == 2 * (3 * softmax + bias)
    llama = Case("llama", LANGUAGE["mqa"], {"batch_size": 3, "seq_len": 7})
    assert value("norm_flops", llama) == 4 * (2 * 2 + 1) * 3 * 7 * 35


def test_prices_refuse_unknown_kinds(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text("softmax = 7\n")
    assert accounts.read_prices(path) == {**FLOATS.prices, "softmax": 7}
    for text in ("softmaxx = 1", "softmax = -1", "softmax = 1.5", "= 1"):
        path.write_text(text)
        with pytest.raises(UsageError, match="prices"):
            accounts.read_prices(path)


@pytest.mark.parametrize("window", [1, 5, 11, 12, 30])
def test_window_limits_the_tokens_of_a_step(window):
    case = Case.of("mistral-7b", {"num_layers": 2}, lengths={"seq_len": 11})
    short = Case.of("mistral-7b", {"num_layers": 2}, lengths={"seq_len": min(11, window)})
    given = Assumptions(window=window)
    for name in ("kv_bytes", "decode_macs", "decode_bytes"):
        assert value(name, case, given) == value(name, short, Assumptions())
    token = value("kv_token_bytes", case, Assumptions())
    assert value("kv_token_bytes", case, given) == (token if window > 11 else 0)
    steps = [value("decode_macs", case, replace(given, context=stored)) for stored in range(1, 12)]
    assert value("generate_macs", case, given) == sum(steps)


def test_intensity_without_bytes_is_unknown():
    found, missing = accounts.values(
        ["intensity"], Count("empty", Ledger(())).with_values(bytes_moved=0), Assumptions()
    )
    assert found["intensity"] is None and "moves bytes" in missing["intensity"]


def test_ideal_is_a_form_and_no_column():
    with pytest.raises(UsageError, match="--set form=ideal"):
        accounts.check(["macs", "ideal"], Assumptions())
